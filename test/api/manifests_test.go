// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/testkit/env"
)

const config = "../../config"

func manifest(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(config, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestWorkloadsPassStrictValidation(t *testing.T) {
	admin := env.Get(t).Admin(t)
	for _, path := range []string{"agent/daemonset.yaml", "operator/deployment.yaml"} {
		object := &unstructured.Unstructured{}
		manifest(t, path, &object.Object)
		if err := admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestAgentPrivileges: what the agent may do on a node is a promise to administrators.
func TestAgentPrivileges(t *testing.T) {
	daemonSet := &appsv1.DaemonSet{}
	manifest(t, "agent/daemonset.yaml", daemonSet)
	spec := daemonSet.Spec.Template.Spec
	got := spec.Containers[0].SecurityContext
	want := &corev1.Capabilities{Add: []corev1.Capability{"SYS_MODULE", "SYSLOG", "SYS_PTRACE", "DAC_READ_SEARCH"},
		Drop: []corev1.Capability{"ALL"}}
	if diff := cmp.Diff(want, got.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	if *got.Privileged || !*got.ReadOnlyRootFilesystem || spec.HostPID || spec.HostIPC {
		t.Errorf("more than the agent needs: %+v", got)
	}
	const callDeadline = 60 // --kernel-call-deadline, which the DaemonSet leaves as it is
	if *spec.TerminationGracePeriodSeconds < callDeadline+15 {
		t.Errorf("%d s are too few to end in order: one call to the kernel may take %d", *spec.TerminationGracePeriodSeconds, callDeadline)
	}
	for _, mount := range spec.Containers[0].VolumeMounts {
		switch mount.Name {
		case "proc", "sys", "state", "tmp", "firmware":
		default:
			if !mount.ReadOnly {
				t.Errorf("mount %s is writable", mount.Name)
			}
		}
		if mount.Name == "pods" && (mount.MountPropagation == nil || *mount.MountPropagation != corev1.MountPropagationHostToContainer) {
			t.Error("the kubelet's pods directory would keep other pods' volumes busy")
		}
	}
}

// TestOperatorHasNoVerbOnSecrets, nor a writing one on ConfigMaps, and its agents' image is what
// the policy and the carriers agree on.
func TestOperatorHasNoVerbOnSecrets(t *testing.T) {
	role := &rbacv1.ClusterRole{}
	manifest(t, "rbac/operator_role.yaml", role)
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			// Of ConfigMaps it reads the one that a build names, and watches that they change.
			reads := resource == "configmaps" && !slices.ContainsFunc(rule.Verbs,
				func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			if resource == "secrets" || resource == "*" || resource == "configmaps" && !reads {
				t.Errorf("the operator has %v on %s", rule.Verbs, resource)
			}
		}
	}
	images := &corev1.ConfigMap{}
	manifest(t, "operator/images.yaml", images)
	daemonSet := &appsv1.DaemonSet{}
	manifest(t, "agent/daemonset.yaml", daemonSet)
	if a, b := images.Data["agent"], daemonSet.Spec.Template.Spec.Containers[0].Image; a != b || a != env.AgentImage {
		t.Errorf("the agent's image differs: %s, %s, %s", a, b, env.AgentImage)
	}
}

// TestWhatViewGetsIsToLookOnly: the one role that is aggregated, and only to view, reads Modules
// and the images that are made for them, and nothing else.
func TestWhatViewGetsIsToLookOnly(t *testing.T) {
	role := &rbacv1.ClusterRole{}
	manifest(t, "rbac/module_view_role.yaml", role)
	labels := map[string]string{"app.kubernetes.io/part-of": "drover", "rbac.authorization.k8s.io/aggregate-to-view": "true"}
	if diff := cmp.Diff(labels, role.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	look := []string{"get", "list", "watch"}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"drover.dev"}, Resources: []string{"moduleimages", "moduleimages/status"}, Verbs: look},
		{APIGroups: []string{"kmm.sigs.x-k8s.io"}, Resources: []string{"modules", "modules/status"}, Verbs: look},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestEditorAndViewerAreNotAggregated: who may edit pods in a namespace may not put code into
// kernels.
func TestEditorAndViewerAreNotAggregated(t *testing.T) {
	for _, path := range []string{"rbac/module_editor_role.yaml", "rbac/module_viewer_role.yaml"} {
		role := &rbacv1.ClusterRole{}
		manifest(t, path, role)
		for label := range role.Labels {
			if label != "app.kubernetes.io/part-of" {
				t.Errorf("%s has label %s", path, label)
			}
		}
	}
}
