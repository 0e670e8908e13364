// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestBuildsAreOfOneKind: by a Dockerfile or natively, from one source; what Go clients send for "unset" is unset.
func TestBuildsAreOfOneKind(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	native := &v1beta1.NativeBuild{ToolchainImage: "r/gcc:12", SourceImage: "r/src:1"}
	for name, tc := range map[string]struct {
		given v1beta1.Build
		then  []string
	}{
		"a Dockerfile":          {given: v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}}},
		"as the container says": {},
		"native":                {given: v1beta1.Build{Native: native, DockerfileConfigMap: &corev1.LocalObjectReference{}}},
		"both": {
			given: v1beta1.Build{Native: native, DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}},
			then:  []string{"dockerfileConfigMap and native are mutually exclusive"},
		},
		"two sources": {
			given: v1beta1.Build{Native: &v1beta1.NativeBuild{SourceImage: "r/src:1", SourceConfigMap: &corev1.LocalObjectReference{Name: "s"}}},
			then:  []string{"sourceImage and sourceConfigMap are mutually exclusive"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, place := range []func(*v1beta1.Module){
				func(m *v1beta1.Module) { container(m).Build = &tc.given },
				func(m *v1beta1.Module) { container(m).KernelMappings[1].Build = &tc.given },
			} {
				m := valid(place)
				m.Namespace = namespace
				check(t, admin.Create(t.Context(), m, client.DryRunAll), tc.then...)
			}
		})
	}
}
