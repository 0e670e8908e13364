// SPDX-License-Identifier: Apache-2.0

//go:build linux

package builds

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	// namedPackages must load; of others it is told what becomes of them.
	namedPackages = "v4l2loopback-dkms dm-writeboost-dkms acpi-call-dkms"
	// atOnce is how many packages are in work: while one waits for a container, another compiles.
	atOnce = 2
	// packagePatience is how long a package may be built. Some are large.
	packagePatience = 20 * time.Minute
	// progress is how often it is said what a package waits for.
	progress = 2 * time.Minute
)

// packageResult is what came of a package, for the result.
type packageResult struct {
	Built   bool   `json:"built"`
	Signed  bool   `json:"signed"`
	Loaded  bool   `json:"loaded"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Kernel is what the kernel said last, of a module that it did not take.
	Kernel  string  `json:"kernel,omitempty"`
	Seconds float64 `json:"seconds"`
	// order is that of its modules, the topmost first.
	order []string
}

// wantedPackages are those of PKGS, or the named ones.
func wantedPackages() []string { return strings.Fields(cmp.Or(os.Getenv("PKGS"), namedPackages)) }

func isNamed(name string) bool { return slices.Contains(strings.Fields(namedPackages), name) }

// dkms builds each package natively by a Job, signs, pushes and loads it. One that fails does not
// keep the others.
func (s *Steps) dkms(ctx context.Context) error {
	s.packages = map[string]*packageResult{}
	s.Extra["packages"] = s.packages
	names := wantedPackages()
	failed := make([]error, len(names))
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for i, name := range names {
		r := &packageResult{}
		s.packages[name] = r
		group.Go(func() error {
			begin := time.Now()
			err := s.dkmsPackage(ctx, name, r)
			r.Seconds = time.Since(begin).Round(time.Second).Seconds()
			if err == nil && isNamed(name) && !r.Loaded {
				err = fmt.Errorf("it is not loaded: %s: %s", r.Reason, r.Message)
			}
			if err != nil {
				failed[i] = fmt.Errorf("%s: %w", name, err)
				r.Message = cmp.Or(r.Message, err.Error())
			}
			s.Say("   %s: %+v", name, *r)
			return nil
		})
	}
	return errors.Join(group.Wait(), errors.Join(failed...))
}

func (s *Steps) dkmsPackage(ctx context.Context, name string, r *packageResult) error {
	d, err := s.Cache.DKMS(ctx, name, s.Release(), "/headers", "/build")
	if err != nil {
		return err
	}
	source := "sources/" + name + ":1"
	if err := s.pushSource(ctx, d.Dir, source); err != nil {
		return err
	}
	m := s.made(client.ObjectKey{Namespace: nativeSpace, Name: strings.TrimSuffix(name, "-dkms")}, d.Modules[:1])
	m.Spec.ModuleLoader.Container.Build = NativeBuild(d.Script)
	native := m.Spec.ModuleLoader.Container.Build.Native
	native.SourceImage = registry.Host + "/" + source
	native.Command = []string{"/bin/sh", "-c", d.Script + collected("packed", d.Modules)}
	onBuilder(m)
	return s.followPackage(ctx, m, d.Modules, r)
}

// collected copies modules, which may lie in folders of their own, into one, and strips them as
// dkms does.
func collected(into string, modules []string) string {
	return fmt.Sprintf(" && mkdir -p %[1]s && for m in %[2]s; do cp \"$(find . -name $m.ko | head -n 1)\" %[1]s/ && strip --strip-debug "+
		"%[1]s/$m.ko || exit 1; done", into, strings.Join(modules, " "))
}

// dkmsDockerfile builds those that could be loaded once more, all by one Job with Buildah, and
// loads them together.
func (s *Steps) dkmsDockerfile(ctx context.Context) error {
	target := "/out/opt/lib/modules/" + s.Release() + "/extra/packed"
	lines := []string{
		"FROM " + registry.Host + "/" + headersImage + suite.TagOf(s.Release()) + " AS headers",
		"FROM " + registry.Host + "/" + ToolchainImage + " AS build",
	}
	var run, order, modules []string
	for _, name := range wantedPackages() {
		if !s.packages[name].Loaded {
			continue
		}
		dir := "/build/" + name
		d, err := s.Cache.DKMS(ctx, name, s.Release(), "/headers", dir)
		if err != nil {
			return err
		}
		lines = append(lines, "COPY --from="+registry.Host+"/sources/"+name+":1 / "+dir+"/")
		run = append(run, "cd "+dir+" && "+d.Script+collected(target, d.Modules))
		order, modules = append(order, s.packages[name].order...), append(modules, d.Modules...)
	}
	if len(modules) == 0 {
		return nil
	}
	lines = append(lines, "RUN --mount=type=bind,from=headers,target=/headers "+strings.Join(run, " && "), "FROM scratch",
		"COPY --from=build /out/ /")
	if err := s.dockerfile(ctx, "packages", strings.Join(lines, "\n")+"\n"); err != nil {
		return err
	}
	m := s.made(client.ObjectKey{Namespace: dockerSpace, Name: "packages"}, order)
	m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "packages"}}
	onBuilder(m)
	r := &packageResult{}
	if err := s.followPackage(ctx, m, modules, r); err != nil {
		return err
	}
	if !r.Loaded {
		return fmt.Errorf("%s: %s", r.Reason, r.Message)
	}
	return nil
}

// followPackage builds and loads a package's Module, and takes it away. That it does not compile,
// or finds no device, is a result.
func (s *Steps) followPackage(ctx context.Context, m *v1beta1.Module, modules []string, r *packageResult) error {
	key := client.ObjectKeyFromObject(m)
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	said := time.Now()
	err := s.Within(ctx, packagePatience, "the image is there, or cannot be built", func(ctx context.Context) error {
		if s.ended(ctx, key, v1beta1.ConditionImagesAvailable, r, v1beta1.ReasonBuildFailed, v1beta1.ReasonSignFailed, v1beta1.ReasonPushFailed) {
			return nil
		}
		err := s.ConditionIs(ctx, key, v1beta1.ConditionImagesAvailable, "True", v1beta1.ReasonImagesAvailable)
		if err != nil && time.Since(said) > progress {
			said = time.Now()
			s.Say("   %s: %v", key.Name, err)
		}
		return err
	})
	if err != nil || r.Reason != "" {
		return errors.Join(err, s.removeAll(ctx, key, modules))
	}
	r.Built = true
	if err := s.signedByUs(ctx, s.repository(m), modules); err != nil {
		return err
	}
	r.Signed = true
	if err := s.loadInOrder(ctx, m, modules); err != nil {
		return err
	}
	modprobe := m.Spec.ModuleLoader.Container.Modprobe
	if r.order = modprobe.ModulesLoadingOrder; r.order == nil {
		r.order = []string{modprobe.ModuleName}
	}
	err = s.Eventually(ctx, key.Name+" is loaded, or says what it lacks", func(ctx context.Context) error {
		if s.refused(ctx, key, r) {
			return nil
		}
		if err := s.Ready(ctx, artifacts.Linux61, key, kmod.NormalizeName(modprobe.ModuleName)); err != nil {
			return err // the console costs the node time
		}
		return s.allInKernel(ctx, modules, true)
	})
	if err != nil {
		return err
	}
	r.Loaded = r.Reason == ""
	return s.removeAll(ctx, key, modules)
}

// refused notes that the node failed to load a Module's kernel module, as the Module is now, why,
// and the kernel's own words. What is tried again may still load.
func (s *Steps) refused(ctx context.Context, key client.ObjectKey, r *packageResult) bool {
	nmc, err := s.NodeConfig(ctx)
	if err != nil {
		return false
	}
	for _, a := range nmc.Status.Attempts {
		of := a.Namespace == key.Namespace && a.Name == key.Name
		if of && a.State == v1beta1.AttemptFailed && a.NextRetry == nil &&
			s.ended(ctx, key, v1beta1.ConditionLoaded, &packageResult{}, a.Reason) {
			r.Reason, r.Message = a.Reason, a.Message
			if r.Kernel, err = s.Console(ctx, "dmesg | tail -n 5"); err != nil {
				r.Kernel = err.Error()
			}
			return true
		}
	}
	return false
}

// ended notes that a Module will not get on, with one of these reasons, and why.
func (s *Steps) ended(ctx context.Context, key client.ObjectKey, condition string, r *packageResult, reasons ...string) bool {
	m := &v1beta1.Module{}
	if err := s.Client.Get(ctx, key, m); err != nil {
		return false
	}
	c := meta.FindStatusCondition(m.Status.Conditions, condition)
	if c == nil || c.Status == metav1.ConditionTrue || !slices.Contains(reasons, c.Reason) || c.ObservedGeneration != m.Generation {
		return false
	}
	r.Reason, r.Message = c.Reason, c.Message
	return true
}

// loadInOrder names all modules of an image, for the Module was made with the first. Which of them
// needs which is in the files.
func (s *Steps) loadInOrder(ctx context.Context, m *v1beta1.Module, modules []string) error {
	if modprobe := m.Spec.ModuleLoader.Container.Modprobe; len(modules) == 1 || len(modprobe.ModulesLoadingOrder) > 0 {
		return nil
	}
	order, err := s.topmostFirst(ctx, s.repository(m), modules)
	if err != nil {
		return err
	}
	base := m.DeepCopy()
	modprobe := &m.Spec.ModuleLoader.Container.Modprobe
	modprobe.ModuleName, modprobe.ModulesLoadingOrder = order[0], order
	return s.Client.Patch(ctx, m, client.MergeFrom(base))
}

// topmostFirst puts each module of an image before those that it needs.
func (s *Steps) topmostFirst(ctx context.Context, repository string, modules []string) ([]string, error) {
	files, err := s.FilesIn(ctx, repository)
	if err != nil {
		return nil, err
	}
	var order []string
	var visit func(module string) error
	visit = func(module string) error {
		if slices.Contains(order, module) {
			return nil
		}
		info, err := kmod.Read(files[module])
		if err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
		for _, other := range modules {
			if slices.Contains(info.Depends, kmod.NormalizeName(other)) {
				if err := visit(other); err != nil {
					return err
				}
			}
		}
		order = append(order, module)
		return nil
	}
	for _, module := range modules {
		if err := visit(module); err != nil {
			return nil, err
		}
	}
	slices.Reverse(order)
	return order, nil
}

// removeAll deletes a Module and waits until the kernel holds none of its modules.
func (s *Steps) removeAll(ctx context.Context, key client.ObjectKey, modules []string) error {
	if err := s.Remove(ctx, key, kmod.NormalizeName(modules[0])); err != nil {
		return err
	}
	return s.allInKernel(ctx, modules, false)
}

// allInKernel checks that the first node's kernel has all of the modules, or none.
func (s *Steps) allInKernel(ctx context.Context, modules []string, want bool) error {
	loaded, err := s.Console(ctx, "cut -d' ' -f1 /proc/modules")
	if err != nil {
		return err
	}
	names := strings.Fields(loaded)
	for _, module := range modules {
		if slices.Contains(names, kmod.NormalizeName(module)) != want {
			return fmt.Errorf("the kernel has %v; of these, %s: %t", names, kmod.NormalizeName(module), !want)
		}
	}
	return nil
}

// FilesIn are the kernel modules of an image in the registry.
func (s *Steps) FilesIn(ctx context.Context, repository string) (found map[string][]byte, err error) {
	reference, err := s.local(repository)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(reference, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	flat := mutate.Extract(image)
	defer func() { err = errors.Join(err, flat.Close()) }()
	found = map[string][]byte{}
	for archive := tar.NewReader(flat); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(header.Name, ".ko") {
			continue
		}
		if found[strings.TrimSuffix(filepath.Base(header.Name), ".ko")], err = io.ReadAll(archive); err != nil {
			return nil, err
		}
	}
}

// signedByUs checks that an image holds these modules, all of them signed by our key.
func (s *Steps) signedByUs(ctx context.Context, repository string, modules []string) error {
	got, err := s.FilesIn(ctx, repository)
	if err != nil {
		return err
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(modules))) {
		return fmt.Errorf("%s holds %v instead of %v", repository, names, modules)
	}
	certificate, err := sign.ParseCertificate(s.signingCert)
	if err != nil {
		return err
	}
	for name, content := range got {
		if err := signature.Verify(content, certificate); err != nil {
			return fmt.Errorf("%s of %s: %w", name, repository, err)
		}
	}
	return nil
}
