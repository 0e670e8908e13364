// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/devicetaint"
	"github.com/drover-project/drover/internal/operator/release"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// asHook is a client with the rights that the chart gives to the Job which runs after an uninstall.
func asHook(t *testing.T, e *env.Env) client.Client {
	t.Helper()
	content, err := os.ReadFile("../../../charts/drover/templates/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(content), "\nrules:\n")
	rules, _, ends := strings.Cut(after, "\n---\n")
	if !found || !ends {
		t.Fatal("the chart's Job has no rules")
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "hook"}}
	if err := yaml.UnmarshalStrict([]byte(rules), &role.Rules); err != nil {
		t.Fatal(err)
	}
	create(t, e.Admin(t), role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "hook"}},
	})
	return e.Client(t, e.UserConfig(t, "hook"))
}

func classOf(name, namespace, module string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1beta1.ModuleNameLabel: module, v1beta1.ModuleNamespaceLabel: namespace,
	}}}
}

func ruleOf(t *testing.T, c client.Client, name, namespace, module string) *unstructured.Unstructured {
	t.Helper()
	kind, err := devicetaint.Kind(c.RESTMapper())
	if err != nil || kind == nil {
		t.Fatalf("DeviceTaintRules are not served: %v", err)
	}
	rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"deviceSelector": map[string]any{"driver": "nic.example.com"},
		"taint":          map[string]any{"key": devicetaint.Key, "effect": "NoSchedule"},
	}}}
	rule.SetGroupVersionKind(*kind)
	rule.SetName(name)
	rule.SetLabels(map[string]string{v1beta1.ModuleNameLabel: module, v1beta1.ModuleNamespaceLabel: namespace})
	return rule
}

// written creates objects as a field owner.
func written(t *testing.T, c client.Client, owner client.FieldOwner, objects ...client.Object) {
	t.Helper()
	create(t, client.WithFieldOwner(c, string(owner)), objects...)
}

// TestNothingStaysOnObjectsOfOthers: an uninstall in the middle of a change leaves no cordon, no
// taint of devices, and neither labels nor DeviceClasses of Modules that are gone. What others have
// written stays, and so do the labels of Modules that are there. The chart's Job may do all that.
func TestNothingStaysOnObjectsOfOthers(t *testing.T) {
	e := env.Get(t)
	e.NeedsDRA(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	kept := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}}
	kept.Spec.Selector = map[string]string{"none": "yes"}
	create(t, admin, kept)

	stays := map[string]string{
		v1beta1.ReadyLabel(namespace, "kept"): "", v1beta1.DevicePluginTargetLabel(namespace, "kept"): "", "example.com/mine": "1",
		v1beta1.VersionModulePrefix + namespace + ".gone": "v1",
	}
	changing := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-changing", Labels: maps.Clone(stays),
		Annotations: map[string]string{v1beta1.CordonedAnnotation: namespace + "/gone," + namespace + "/kept", "example.com/mine": "1"}}}
	changing.Spec.Unschedulable = true
	for _, label := range []string{
		v1beta1.ReadyLabel(namespace, "gone"), v1beta1.VersionReadyLabel(namespace, "gone"), v1beta1.DRAReadyLabel(namespace, "gone"),
		v1beta1.VersionWorkerLabel(namespace, "gone"),
	} {
		changing.Labels[label] = "v1"
	}
	theirs := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-theirs"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	create(t, admin, changing, theirs)
	changing.Status.Conditions = []corev1.NodeCondition{
		{Type: v1beta1.NodeConditionKernelModules, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	if err := admin.Status().Update(t.Context(), changing); err != nil {
		t.Fatal(err)
	}
	ours, others := ruleOf(t, admin, namespace+"-ours", namespace, "kept"), ruleOf(t, admin, namespace+"-theirs", namespace, "kept")
	gone, there, foreign := classOf(namespace+"-gone", namespace, "gone"), classOf(namespace+"-kept", namespace, "kept"),
		classOf(namespace+"-foreign", namespace, "gone")
	written(t, admin, kube.OwnerTaint, ours)
	written(t, admin, kube.OwnerPlugin, gone, there)
	written(t, admin, "somebody", others, foreign)

	hook := asHook(t, e)
	released, why, err := release.All(t.Context(), hook, newClock(nil))
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	if diff := cmp.Diff(map[string]int{"Node": 1, "DeviceTaintRule": 1, "DeviceClass": 1}, released); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	for _, o := range []client.Object{ours, gone} {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s stays: %v", o, o.GetName(), err)
		}
	}
	for _, o := range []client.Object{others, there, foreign, changing, theirs} {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("%T %s is gone: %v", o, o.GetName(), err)
		}
	}
	if diff := cmp.Diff(stays, changing.Labels); diff != "" || changing.Spec.Unschedulable || len(changing.Status.Conditions) != 1 {
		t.Errorf("the node is %+v, with conditions %+v; its labels (-want +got):\n%s", changing.Spec, changing.Status.Conditions, diff)
	}
	if diff := cmp.Diff(map[string]string{"example.com/mine": "1"}, changing.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if !theirs.Spec.Unschedulable {
		t.Error("an administrator's cordon was taken back")
	}
	if released, _, err := release.All(t.Context(), hook, newClock(nil)); err != nil || len(released) != 0 {
		t.Errorf("the second run releases %v: %v", released, err)
	}
}

// becomes says of each kind that Drover's operators may write what an uninstall leaves on its
// objects, so that a new right is not without an answer.
var becomes = map[string]string{
	"nodes":                                              "cordons, and labels of Modules that are gone, are taken off",
	"nodes/status":                                       "the condition is taken off",
	"devicetaintrules.resource.k8s.io":                   "are deleted",
	"deviceclasses.resource.k8s.io":                      "are deleted with their Module",
	"modules.kmm.sigs.x-k8s.io":                          "the finalizer is taken off",
	"modules/finalizers.kmm.sigs.x-k8s.io":               "no finalizer is written by this right",
	"modules/status.kmm.sigs.x-k8s.io":                   "stays: it is Drover's own kind",
	"preflightvalidations/status.kmm.sigs.x-k8s.io":      "stays: it is Drover's own kind",
	"nodemodulesconfigs.kmm.sigs.x-k8s.io":               "the finalizer is taken off",
	"managedclustermodules.hub.kmm.sigs.x-k8s.io":        "the finalizer is taken off",
	"managedclustermodules/status.hub.kmm.sigs.x-k8s.io": "stays: it is Drover's own kind",
	"moduleimages.drover.dev":                            "stay: it is Drover's own kind",
	"moduleimages/finalizers.drover.dev":                 "no finalizer is written by this right",
	"moduleimages/status.drover.dev":                     "stays: it is Drover's own kind",
	"modules/finalizers.ooto.sigs.k8s.io":                "no finalizer is written by this right",
	"modules/status.ooto.sigs.k8s.io":                    "stays: nothing goes by it",
	"pods":                                               "carriers end by themselves, or with their Node",
	"serviceaccounts":                                    "Drover's own stay for the pods that run on",
	"daemonsets.apps":                                    "Drover's own stay, and run where the ready labels are",
	"jobs.batch":                                         "Drover's own run to their end",
	"configmaps":                                         "Drover's own stay, in the namespaces of their Modules",
	"clusterclaims.cluster.open-cluster-management.io":   "Drover's own stay: hubs are asked for nothing because of them",
	"manifestworks.work.open-cluster-management.io":      "Drover's own stay: spokes would unload without them",
	"pods/eviction":                                      "an eviction ends by itself",
	"events.events.k8s.io":                               "expire",
	"tokenreviews.authentication.k8s.io":                 "are never stored",
	"subjectaccessreviews.authorization.k8s.io":          "are never stored",
}

// TestEveryWriteHasAnEnd: see becomes.
func TestEveryWriteHasAnEnd(t *testing.T) {
	for _, file := range []string{
		"rbac/operator_role", "build/operator_role", "spoke/operator_role", "spoke/claims_role", "ooto/operator_role",
		"node-condition/operator_role", "hub/hub_role",
	} {
		content, err := os.ReadFile("../../../config/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal(content, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" }) {
				continue
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					if kind := strings.TrimSuffix(resource+"."+group, "."); becomes[kind] == "" {
						t.Errorf("%s: what becomes of what Drover writes to %s at an uninstall?", file, kind)
					}
				}
			}
		}
	}
}
