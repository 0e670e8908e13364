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
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/testkit/kernels"
)

// TestRealKernelsAsBuildArguments: a build gets every variable that its kernel has, in the
// arguments of Buildah and in the environment of a command; one of the user's own of the same name
// wins.
func TestRealKernelsAsBuildArguments(t *testing.T) {
	for _, k := range kernels.Real() {
		t.Run(k.Version, func(t *testing.T) {
			want := maps.Clone(k.Variables)
			for _, whole := range []string{"KERNEL_FULL_VERSION", "KERNEL_VERSION"} {
				want[whole] = k.Version
			}
			for _, release := range []string{"KERNEL_DEBIAN_RELEASE", "KERNEL_UBUNTU_RELEASE"} {
				if value, ok := want[release]; ok {
					want[release] = strings.ReplaceAll(value, "_", "+") // no such release has a "_" of its own
				}
			}
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
			for _, processors := range []string{"DROVER_PROCESSORS", "OMP_NUM_THREADS"} {
				if got[processors] != "8" {
					t.Errorf("%s is %q", processors, got[processors])
				}
				delete(got, processors)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKernelsAreNamedAsTheyPrintThemselves: a build finds /lib/modules/$(uname -r) and a package of
// that name; only references of images hold what a tag may hold.
func TestKernelsAreNamedAsTheyPrintThemselves(t *testing.T) {
	for given, tag := range map[string]string{
		"6.12.57+deb13-amd64":                   "6.12.57_deb13-amd64",
		"5.14.0-503.11.1.el9_5.aarch64+64k":     "5.14.0-503.11.1.el9_5.aarch64_64k",
		"6.1.123+":                              "6.1.123",
		"6.12.34+rpt-rpi-2712":                  "6.12.34_rpt-rpi-2712",
		"5.10.0-13-amd64":                       "5.10.0-13-amd64",
		"5.14.0-503.11.1.el9_5.x86_64+rt-debug": "5.14.0-503.11.1.el9_5.x86_64_rt-debug",
	} {
		t.Run(given, func(t *testing.T) {
			m := module(compiling, func(m *v1beta1.Module) {
				container(m).Sign = &v1beta1.Sign{
					KeySecret: ref("key"), CertSecret: ref("cert"), FilesToSign: []string{"/opt/lib/modules/${KERNEL_FULL_VERSION}/extra/*.ko"},
					UnsignedImage: "r.example/unsigned:${KERNEL_VERSION}",
				}
			})
			spec, err := declare(t, m, given)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{spec.KernelVersion, spec.Sign.Files[0], spec.Image, spec.Sign.UnsignedImage, spec.Build.Native.HeadersImage}
			want := []string{
				given, "/opt/lib/modules/" + given + "/extra/*.ko", "r.example/m:" + tag, "r.example/unsigned:" + tag, "r/headers:" + tag,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kernel, files, references (-want +got):\n%s", diff)
			}
			job := pipeline.Job(&v1alpha1.ModuleImage{Spec: *spec}, 1, "New", options())
			pods := job.Spec.Template.Spec
			for _, c := range pods.InitContainers {
				if at := slices.Index(c.Args, "--kernel"); at >= 0 && c.Args[at+1] != given {
					t.Errorf("step %s is told kernel %s", c.Name, c.Args[at+1])
				}
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
	containers := pipeline.Job(&v1alpha1.ModuleImage{Spec: *spec}, 1, "New", options()).Spec.Template.Spec.InitContainers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == pipeline.StepBuild })
	if at < 0 {
		t.Fatal("no step builds")
	}
	return containers[at]
}
