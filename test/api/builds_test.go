// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestBuildsAreOfOneKind: by a Dockerfile or natively, from one source; what Go clients send for
// "unset" is unset.
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

// TestBuildsNameKnownVariables: in where a build is pushed to, and in what a native build is made
// from.
func TestBuildsNameKnownVariables(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	for name, given := range map[string]func(image string) *v1beta1.Build{
		"push":      func(i string) *v1beta1.Build { return &v1beta1.Build{Push: &v1beta1.BuildPush{Name: i}} },
		"toolchain": func(i string) *v1beta1.Build { return &v1beta1.Build{Native: &v1beta1.NativeBuild{ToolchainImage: i}} },
		"headers":   func(i string) *v1beta1.Build { return &v1beta1.Build{Native: &v1beta1.NativeBuild{HeadersImage: i}} },
		"source":    func(i string) *v1beta1.Build { return &v1beta1.Build{Native: &v1beta1.NativeBuild{SourceImage: i}} },
	} {
		t.Run(name, func(t *testing.T) {
			for image, then := range map[string]string{
				"r/m:1": "", "$CONTAINER_IMAGE-unsigned": "", "r/m:${KERNEL_XYZ}": "", "r/m:$NOPE": "unknown template variable",
			} {
				for place, change := range map[string]func(*v1beta1.Module){
					"spec.moduleLoader.container.build":                   func(m *v1beta1.Module) { container(m).Build = given(image) },
					"spec.moduleLoader.container.kernelMappings[1].build": func(m *v1beta1.Module) { container(m).KernelMappings[1].Build = given(image) },
				} {
					m := valid(change)
					m.Namespace = namespace
					if err := admin.Create(t.Context(), m, client.DryRunAll); then == "" {
						check(t, err)
					} else {
						check(t, err, then, place)
					}
				}
			}
		})
	}
}
