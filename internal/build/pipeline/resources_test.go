// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

func list(t *testing.T, text string) corev1.ResourceList {
	t.Helper()
	parsed, err := pipeline.ParseResources(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestBuildResources: the mapping's over the container's over the operator's over the defaults,
// each by name, and for the container alone that compiles.
func TestBuildResources(t *testing.T) {
	for name, tc := range map[string]struct {
		operator, container, mapping [2]string // requests and limits
		then                         [2]string
		processors                   string
	}{
		"nothing is said": {then: [2]string{"cpu=500m,memory=512Mi,ephemeral-storage=0", "cpu=8,memory=4Gi,ephemeral-storage=32Gi"},
			processors: "8"},
		"by the operator": {
			operator: [2]string{"cpu=1,memory=1Gi,ephemeral-storage=2Gi", "cpu=16,memory=16Gi,ephemeral-storage=64Gi"},
			then:     [2]string{"cpu=1,memory=1Gi,ephemeral-storage=2Gi", "cpu=16,memory=16Gi,ephemeral-storage=64Gi"}, processors: "16",
		},
		"by the container, and by the mapping over it": {
			container: [2]string{"memory=2Gi", "cpu=2,memory=6Gi"}, mapping: [2]string{"", "cpu=1500m"},
			then: [2]string{"cpu=500m,memory=2Gi,ephemeral-storage=0", "cpu=1500m,memory=6Gi,ephemeral-storage=32Gi"}, processors: "2",
		},
		"a limit below the operator's request": {
			container: [2]string{"", "cpu=100m,memory=256Mi"},
			then:      [2]string{"cpu=100m,memory=256Mi,ephemeral-storage=0", "cpu=100m,memory=256Mi,ephemeral-storage=32Gi"}, processors: "1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := func(text [2]string) *v1beta1.BuildResources {
				if text == [2]string{} {
					return nil
				}
				return &v1beta1.BuildResources{Requests: list(t, text[0]), Limits: list(t, text[1])}
			}
			o := options()
			o.BuildRequests, o.BuildLimits = list(t, tc.operator[0]), list(t, tc.operator[1])
			m := module(compiling, func(m *v1beta1.Module) {
				container(m).Build.Resources = own(tc.container)
				mapping(m).Build = &v1beta1.Build{Resources: own(tc.mapping)}
			})
			pod := &pipeline.Job(image(t, m, nil, ""), 1, "New", o).Spec.Template.Spec
			want := corev1.ResourceRequirements{Requests: list(t, tc.then[0]), Limits: list(t, tc.then[1])}
			build := step(pod, pipeline.StepBuild)
			if diff := cmp.Diff(want, build.Resources); diff != "" {
				t.Errorf("the container that compiles (-want +got):\n%s", diff)
			}
			if env := environment(build); env["OMP_NUM_THREADS"] != tc.processors || env["DROVER_PROCESSORS"] != tc.processors {
				t.Errorf("nproc says %s, DROVER_PROCESSORS is %s, want %s", env["OMP_NUM_THREADS"], env["DROVER_PROCESSORS"], tc.processors)
			}
			docker := module(func(m *v1beta1.Module) {
				container(m).Build = &v1beta1.Build{DockerfileConfigMap: ref("dockerfile"), Resources: own(tc.container)}
				mapping(m).Build = &v1beta1.Build{Resources: own(tc.mapping)}
			})
			args := step(&pipeline.Job(image(t, docker, &corev1.ConfigMap{Data: map[string]string{"dockerfile": ""}},
				"example.com/buildah@sha256:1"), 1, "New", o).Spec.Template.Spec, pipeline.StepBuild).Args
			if want := "DROVER_PROCESSORS=" + tc.processors; !slices.Contains(args, want) {
				t.Errorf("a Dockerfile's arguments are %q, without %s", args, want)
			}
			if got := environment(step(pod, pipeline.StepPack))["GOMEMLIMIT"]; got != "966367638" { // nine tenths of 1 GiB
				t.Errorf("GOMEMLIMIT of another step is %q", got)
			}
			if got := step(pod, pipeline.StepPack).Resources.Limits; !got.Memory().Equal(list(t, "memory=1Gi")[corev1.ResourceMemory]) ||
				got.StorageEphemeral().IsZero() {
				t.Errorf("another step may use %v", got)
			}
		})
	}
}

// environment is what a container's variables say.
func environment(c *corev1.Container) map[string]string {
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	return env
}

func TestParseResources(t *testing.T) {
	for text, says := range map[string]string{
		"": "", "cpu=2": "", "cpu=2,memory=4Gi,ephemeral-storage=0": "",
		"gpu=1": `"gpu" is not cpu, memory or ephemeral-storage`, "cpu": `cpu: "" is not a quantity`, "memory=much": "not a quantity",
		"memory=-1Gi": "not a quantity", "cpu=1E-2147483648": "not a quantity", "cpu=" + strings.Repeat("9", 1e6): "not a quantity",
	} {
		if _, err := pipeline.ParseResources(text); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q", text, err, says)
		}
	}
}
