// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/testkit/kernels"
)

// TestRealKernelsAsBuildArguments: a build gets every variable that its kernel has, in the arguments of Buildah and in the environment of a
// command; one of the user's own of the same name wins.
func TestRealKernelsAsBuildArguments(t *testing.T) {
	for _, k := range kernels.Real() {
		t.Run(k.Version, func(t *testing.T) {
			want := maps.Clone(k.Variables)
			want["MOD_NAME"], want["MOD_NAMESPACE"] = "m", "ns"
			want["CONTAINER_IMAGE"] = "r.example/m:" + k.Variables["KERNEL_FULL_VERSION"]
			want["KERNEL_Y"] = "mine"
			own := func(m *v1beta1.Module) {
				container(m).Build.BuildArgs = []v1beta1.BuildArg{{Name: "KERNEL_Y", Value: "mine"}}
			}
			got := map[string]string{}
			for _, e := range buildStep(t, k.Version, compiling, own).Env {
				if _, wanted := want[e.Name]; wanted || strings.HasPrefix(e.Name, "KERNEL_") && e.Name != "KERNEL_HEADERS" {
					got[e.Name] = e.Value
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
			got = map[string]string{}
			args := buildStep(t, k.Version, own).Args
			for i, arg := range args {
				if arg == "--build-arg" {
					name, value, _ := strings.Cut(args[i+1], "=")
					got[name] = value
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

// buildStep is the container that builds a Module's image for a kernel.
func buildStep(t *testing.T, version string, change ...func(*v1beta1.Module)) corev1.Container {
	t.Helper()
	spec, err := declare(t, module(change...), version)
	if err != nil {
		t.Fatal(err)
	}
	containers := pipeline.BuilderOf(spec).Render(&v1alpha1.ModuleImage{Spec: *spec}, options()).Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == pipeline.StepBuild })
	if at < 0 {
		t.Fatal("no step builds")
	}
	return containers[at]
}
