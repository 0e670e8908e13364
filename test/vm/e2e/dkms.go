// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/registry"
)

// namedPackages must load; any other may say that its hardware is missing.
const namedPackages = "v4l2loopback-dkms dm-writeboost-dkms acpi-call-dkms"

// buildPatience is how long a build on the virtual node may take.
const buildPatience = 15 * time.Minute

// packageResult is what came of a package, for the result.
type packageResult struct {
	Built   bool    `json:"built"`
	Signed  bool    `json:"signed"`
	Loaded  bool    `json:"loaded"`
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
}

// dkms builds, signs, pushes and loads each package of PKGS, natively and from a Dockerfile.
func (s *suite) dkms(ctx context.Context) error {
	results := map[string]*packageResult{}
	s.extra["packages"] = results
	for _, pkg := range strings.Fields(cmp.Or(os.Getenv("PKGS"), namedPackages)) {
		results[pkg] = &packageResult{}
		begin := time.Now()
		err := s.dkmsPackage(ctx, pkg, results[pkg])
		results[pkg].Seconds = time.Since(begin).Round(time.Second).Seconds()
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		s.say("   %s: %+v", pkg, *results[pkg])
	}
	return nil
}

func (s *suite) dkmsPackage(ctx context.Context, pkg string, r *packageResult) error {
	d, err := s.cache.DKMS(ctx, pkg, s.release(), "/headers", "/build")
	if err != nil {
		return err
	}
	if err := s.pushSource(ctx, d.Dir, "sources/"+pkg+":1"); err != nil {
		return err
	}
	for _, space := range []string{nativeSpace, dockerSpace} {
		m := s.made(client.ObjectKey{Namespace: space, Name: strings.TrimSuffix(pkg, "-dkms")}, d.Modules)
		container := &m.Spec.ModuleLoader.Container
		if space == nativeSpace {
			container.Build = nativeBuild(d.Script)
			container.Build.Native.SourceImage = registry.Host + "/sources/" + pkg + ":1"
		} else {
			if err := s.dockerfile(ctx, m.Name, dockerfileOf("sources/"+pkg+":1", d.Script, s.release())); err != nil {
				return err
			}
			container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: m.Name}}
		}
		named := strings.Contains(" "+namedPackages+" ", " "+pkg+" ")
		if err := s.buildAndLoad(ctx, m, d.Modules, r, !named); err != nil {
			return fmt.Errorf("in namespace %s: %w", space, err)
		}
	}
	return nil
}

// made asks for a kernel module whose image is signed, and built as the caller says, on the first node.
func (s *suite) made(key client.ObjectKey, modules []string) *v1beta1.Module {
	m := module(key, artifacts.Linux61, podRegistry+"/made/"+key.Namespace+"-"+key.Name+":${KERNEL_FULL_VERSION}", modules[0])
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
func (s *suite) repository(m *v1beta1.Module) string {
	return "made/" + m.Namespace + "-" + m.Name + ":" + tagOf(s.release())
}

// nativeBuild compiles with the toolchain that is in the registry. A package's modules may lie in folders of their own.
func nativeBuild(script string) *v1beta1.Build {
	return &v1beta1.Build{Native: &v1beta1.NativeBuild{
		ToolchainImage: registry.Host + "/" + toolchainImage, HeadersImage: registry.Host + "/" + headersImage + "${KERNEL_FULL_VERSION}",
		Command:   []string{"/bin/sh", "-c", script + " && mkdir packed && find . -name '*.ko' ! -path './packed/*' -exec cp {} packed/ ';'"},
		Artifacts: []string{"packed/*.ko"},
	}}
}

func dockerfileOf(source, script, release string) string {
	target := "/out/opt/lib/modules/" + release + "/extra/packed"
	return strings.Join([]string{
		"FROM " + registry.Host + "/" + headersImage + tagOf(release) + " AS headers",
		"FROM " + registry.Host + "/" + source + " AS source",
		"FROM " + registry.Host + "/" + toolchainImage + " AS build",
		"COPY --from=source / /build/",
		"WORKDIR /build",
		// Mounted, for to copy these thousands of files takes an emulated node five minutes.
		"RUN --mount=type=bind,from=headers,target=/headers " + script + " && mkdir -p " + target + " && find . -name '*.ko' -exec cp {} " + target + "/ ';'",
		"FROM scratch",
		"COPY --from=build /out/ /",
	}, "\n") + "\n"
}

// dockerfile makes, or changes, the ConfigMap of a Dockerfile.
func (s *suite) dockerfile(ctx context.Context, name, text string) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: dockerSpace, Name: name}, Data: map[string]string{"dockerfile": text}}
	err := s.client.Create(ctx, config)
	if err == nil || client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	return s.client.Update(ctx, config)
}

// buildAndLoad follows one Module from its creation until the kernel holds it, and away.
func (s *suite) buildAndLoad(ctx context.Context, m *v1beta1.Module, modules []string, r *packageResult, mayLackHardware bool) error {
	if err := s.build(ctx, m, modules, r, mayLackHardware); err != nil {
		return err
	}
	return s.remove(ctx, client.ObjectKeyFromObject(m), strings.ReplaceAll(modules[0], "-", "_"))
}

// build follows one Module from its creation until the kernel holds it.
func (s *suite) build(ctx context.Context, m *v1beta1.Module, modules []string, r *packageResult, mayLackHardware bool) error {
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	return s.follow(ctx, m, modules, r, mayLackHardware)
}

// follow follows one Module until the kernel holds it.
func (s *suite) follow(ctx context.Context, m *v1beta1.Module, modules []string, r *packageResult, mayLackHardware bool) error {
	key, loads := client.ObjectKeyFromObject(m), strings.ReplaceAll(modules[0], "-", "_")
	if err := s.within(ctx, buildPatience, "the image is there", func(ctx context.Context) error {
		return s.conditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "True", v1beta1.ReasonImagesAvailable)
	}); err != nil {
		return err
	}
	r.Built = true
	if err := s.signedWhole(ctx, s.repository(m), modules...); err != nil {
		return err
	}
	r.Signed = true
	err := s.eventually(ctx, "the module is loaded, or says what it lacks", func(ctx context.Context) error {
		if mayLackHardware {
			if r.Reason = s.reasonOf(ctx, key); r.Reason == v1beta1.ReasonNoSuchDevice {
				return nil
			}
		}
		return s.ready(ctx, artifacts.Linux61, key, loads)
	})
	if err != nil {
		return err
	}
	r.Loaded = r.Reason != v1beta1.ReasonNoSuchDevice
	return nil
}

// reasonOf is the reason of a Module's condition Loaded.
func (s *suite) reasonOf(ctx context.Context, key client.ObjectKey) string {
	m := &v1beta1.Module{}
	if err := s.client.Get(ctx, key, m); err != nil {
		return ""
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLoaded); c != nil && c.Status != metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// within is eventually for what takes longer.
func (s *suite) within(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	before := s.patience
	s.patience = limit
	defer func() { s.patience = before }()
	return s.eventually(ctx, what, check)
}
