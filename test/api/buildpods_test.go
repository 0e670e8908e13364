// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

// constraints are what of an OpenShift SecurityContextConstraints decides about our pods.
type constraints struct {
	Metadata            struct{ Name string }
	AllowedCapabilities []corev1.Capability
	Volumes             []string
	RunAsUser           struct{ Type string }
	SeccompProfiles     []string
}

func constraintsCalled(t *testing.T, name string) constraints {
	t.Helper()
	raw, err := os.ReadFile(config + "/openshift/constraints.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(raw), "\n---\n") {
		var c constraints
		if err := yaml.Unmarshal([]byte(document), &c); err != nil {
			t.Fatal(err)
		}
		if c.Metadata.Name == name {
			return c
		}
	}
	t.Fatalf("no constraints %s", name)
	return constraints{}
}

// TestBuildPodsFitTheirConstraints: what the Jobs' pods need is allowed, and each of the
// constraints' volumes and capabilities is needed.
func TestBuildPodsFitTheirConstraints(t *testing.T) {
	native := &v1beta1.NativeBuild{ToolchainImage: "r/gcc:1", SourceConfigMap: local("source"), HeadersImage: "r/headers:1",
		Command: []string{"make"}}
	for name, build := range map[string]*v1alpha1.ImageBuild{
		"drover-build-native": {Native: native},
		"drover-build":        {DockerfileConfigMap: "dockerfile", Secrets: []string{"s"}, Builder: "r/buildah:1"},
	} {
		t.Run(name, func(t *testing.T) {
			allowed := constraintsCalled(t, name)
			image := &v1alpha1.ModuleImage{Spec: v1alpha1.ModuleImageSpec{
				Module: "m", Image: "r/m:1", Architecture: "amd64", Build: build, RepoSecrets: []corev1.LocalObjectReference{{Name: "r"}},
				Sign: &v1alpha1.ImageSign{KeySecret: "k", CertSecret: "c", Files: []string{"/opt/a.ko"}},
			}}
			pod := pipeline.Job(image, 1, "New", &pipeline.Options{SignerImage: "r/signer:1", HostModules: true}).Spec.Template.Spec
			used := map[string]bool{}
			for i := range pod.Volumes {
				used[kindOf(&pod.Volumes[i])] = true
			}
			for kind := range used {
				if !slices.Contains(allowed.Volumes, kind) {
					t.Errorf("volumes of kind %s are not allowed", kind)
				}
			}
			for _, kind := range allowed.Volumes {
				if !used[kind] && kind != "image" {
					t.Errorf("volumes of kind %s are allowed for nothing", kind)
				}
			}
			var added []corev1.Capability
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				s := c.SecurityContext
				added = append(added, s.Capabilities.Add...)
				if ptr.Deref(s.Privileged, false) || ptr.Deref(s.AllowPrivilegeEscalation, true) {
					t.Errorf("%s asks for more than root inside: %+v", c.Name, s)
				}
				if s.RunAsUser != nil && allowed.RunAsUser.Type != "RunAsAny" {
					t.Errorf("%s names a user, which the constraints choose", c.Name)
				}
				if s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined &&
					!slices.Contains(allowed.SeccompProfiles, "unconfined") {
					t.Errorf("%s leaves its seccomp profile", c.Name)
				}
			}
			slices.Sort(added)
			if !slices.Equal(slices.Compact(added), allowed.AllowedCapabilities) {
				t.Errorf("capabilities %v, allowed are %v", added, allowed.AllowedCapabilities)
			}
		})
	}
}

// kindOf is how OpenShift calls the kinds of volumes that we use.
func kindOf(v *corev1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "configMap"
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.HostPath != nil:
		return "hostPath"
	case v.Image != nil:
		return "image"
	case v.Secret != nil:
		return "secret"
	}
	return "another"
}
