// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// BuildPatience is how long a build may take.
const BuildPatience = 15 * time.Minute

// made asks for a kernel module whose image is signed, and built as the caller says, on the first
// node.
func (s *Steps) made(key client.ObjectKey, modules []string) *v1beta1.Module {
	m := loads.Module(key, artifacts.Linux61, PodRegistry+"/made/"+key.Namespace+"-"+key.Name+":${KERNEL_FULL_VERSION}", modules[0])
	container := &m.Spec.ModuleLoader.Container
	container.RegistryTLS.Insecure = true
	if len(modules) > 1 {
		container.Modprobe.ModulesLoadingOrder = modules
	}
	container.Sign = &v1beta1.Sign{
		KeySecret: &corev1.LocalObjectReference{Name: "key"}, CertSecret: &corev1.LocalObjectReference{Name: "cert"},
		FilesToSign: []string{"/opt/lib/modules/*/extra/packed/*.ko"},
	}
	return m
}

// repository of a Module's image, with the tag for the first node.
func (s *Steps) repository(m *v1beta1.Module) string {
	return "made/" + m.Namespace + "-" + m.Name + ":" + suite.TagOf(s.Release())
}

// NativeBuild compiles with the toolchain that is in the registry. A package's modules may lie in
// folders of their own.
func NativeBuild(script string) *v1beta1.Build {
	return &v1beta1.Build{Native: &v1beta1.NativeBuild{
		ToolchainImage: registry.Host + "/" + ToolchainImage, HeadersImage: registry.Host + "/" + headersImage + "${KERNEL_FULL_VERSION}",
		Command:   []string{"/bin/sh", "-c", script + " && mkdir packed && find . -name '*.ko' ! -path './packed/*' -exec cp {} packed/ ';'"},
		Artifacts: []string{"packed/*.ko"},
	}}
}

func dockerfileOf(source, script, release string) string {
	target := "/out/opt/lib/modules/" + release + "/extra/packed"
	return strings.Join([]string{
		"FROM " + registry.Host + "/" + headersImage + suite.TagOf(release) + " AS headers",
		"FROM " + registry.Host + "/" + source + " AS source",
		"FROM " + registry.Host + "/" + ToolchainImage + " AS build",
		"COPY --from=source / /build/",
		"WORKDIR /build",
		// Mounted, so that these thousands of files are not copied.
		"RUN --mount=type=bind,from=headers,target=/headers " + script + " && mkdir -p " + target + " && find . -name '*.ko' -exec cp {} " +
			target + "/ ';'",
		"FROM scratch",
		"COPY --from=build /out/ /",
	}, "\n") + "\n"
}

// dockerfile makes, or changes, the ConfigMap of a Dockerfile.
func (s *Steps) dockerfile(ctx context.Context, name, text string) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: dockerSpace, Name: name}, Data: map[string]string{"dockerfile": text}}
	err := s.Client.Create(ctx, config)
	if err == nil || client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	return s.Client.Update(ctx, config)
}

// build follows one Module from its creation until the kernel holds it.
func (s *Steps) build(ctx context.Context, m *v1beta1.Module, modules ...string) error {
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	return s.follow(ctx, m, modules...)
}

// follow follows one Module until the kernel holds it.
func (s *Steps) follow(ctx context.Context, m *v1beta1.Module, modules ...string) error {
	key := client.ObjectKeyFromObject(m)
	if err := s.Within(ctx, BuildPatience, "the image is there", func(ctx context.Context) error {
		return s.ConditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "True", v1beta1.ReasonImagesAvailable)
	}); err != nil {
		return err
	}
	if err := s.signedWhole(ctx, s.repository(m), modules...); err != nil {
		return err
	}
	return s.Eventually(ctx, "the module is loaded", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, strings.ReplaceAll(modules[0], "-", "_"))
	})
}
