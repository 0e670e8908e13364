// SPDX-License-Identifier: Apache-2.0

package bake_test

import (
	"errors"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/bake"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const (
	kernel = "6.1.0-1-test"
	arch   = "amd64"
)

// place is a registry and the root of a node's image.
type place struct {
	*testing.T
	host, root string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return &place{T: t, host: strings.TrimPrefix(server.URL, "http://"), root: t.TempDir()}
}

// image has a module of some version for a kernel.
func (p *place) image(forKernel, version string) v1.Image {
	p.Helper()
	file := filepath.Join(p.TempDir(), "nic.ko")
	content := synth.Module{Name: "nic", Version: version, Vermagic: forKernel + " SMP mod_unload "}.Bytes()
	if err := os.WriteFile(file, content, 0o644); err != nil {
		p.Fatal(err)
	}
	made, err := images.KmodImage(map[string]string{images.KmodPath(forKernel, "nic.ko"): file}, arch)
	if err != nil {
		p.Fatal(err)
	}
	return made
}

// push makes an image known by its tag, and returns its references by tag and by digest.
func (p *place) push(tag string, image v1.Image) (tagged, pinned string) {
	p.Helper()
	tagged = p.host + "/" + tag
	reference, err := name.ParseReference(tagged)
	if err != nil {
		p.Fatal(err)
	}
	if err := remote.Write(reference, image); err != nil {
		p.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		p.Fatal(err)
	}
	return tagged, reference.Context().Digest(digest.String()).String()
}

func module(image string) *v1beta1.Module {
	m := &v1beta1.Module{}
	m.Namespace, m.Name = "team", "nic"
	m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
		Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: `^6\.`, ContainerImage: image}},
	}}
	return m
}

func (p *place) bake(q bake.Request) (*bake.Baked, error) {
	p.Helper()
	r, err := bake.Open(p.Context(), p.root, bake.StateDir)
	if err != nil {
		return nil, err
	}
	b, err := r.Bake(p.Context(), q)
	return b, errors.Join(err, r.Close())
}

func (p *place) baked(q bake.Request) *bake.Baked {
	p.Helper()
	b, err := p.bake(q)
	if err != nil {
		p.Fatal(err)
	}
	return b
}

func (p *place) state(more ...string) string {
	return filepath.Join(append([]string{p.root, "var/lib/drover"}, more...)...)
}

// boot opens the store as the agent of a node that boots from the image does.
func (p *place) boot() *store.Store {
	p.Helper()
	s, err := store.New(p.Context(), p.state("store"), store.Options{PodsDir: p.TempDir()})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// ordered is the identity in the operator's order.
func ordered(m *v1beta1.Module) string { return desired.New(m).On(kernel, arch).State.Delivery }

// TestBaked: the agent's store has what is baked, for the operator's very order and no other.
func TestBaked(t *testing.T) {
	p := newPlace(t)
	tagged, pinned := p.push("nic:1", p.image(kernel, "1"))
	for image, byTag := range map[string]bool{tagged: true, pinned: false} {
		m := module(image)
		b := p.baked(bake.Request{Module: m, Kernel: kernel, Arch: arch})
		s := p.boot()
		held, err := s.Held()
		if err != nil {
			t.Fatal(err)
		}
		if b.Delivery != ordered(m) || held[b.Delivery] != b.Tree || b.Files != 1 || b.Bytes == 0 || b.ByTag != byTag ||
			!strings.HasSuffix(pinned, b.ImageDigest) {
			t.Errorf("%+v, held %v", b, held)
		}
		tree, err := s.Open(b.Delivery)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := fs.ReadFile(tree, "lib/modules/"+kernel+"/nic.ko"); err != nil || int64(len(content)) != b.Bytes {
			t.Errorf("%d bytes, %v", len(content), err)
		}
		for what, change := range map[string]func(m *v1beta1.Module){
			"another tag": func(m *v1beta1.Module) {
				m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = p.host + "/nic:2"
			},
			"another module":    func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.Modprobe.ModuleName = "other" },
			"another directory": func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.Modprobe.DirName = "/usr" },
			"a rebuild":         func(m *v1beta1.Module) { m.Spec.ImageRebuildTriggerGeneration = new(1) },
		} {
			other := m.DeepCopy()
			change(other)
			if _, err := s.Open(ordered(other)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v, want that it is not held", what, err)
			}
		}
	}
}

// TestModes: all is the agent's own, and nothing but the store is there.
func TestModes(t *testing.T) {
	p := newPlace(t)
	tagged, _ := p.push("nic:1", p.image(kernel, "1"))
	b := p.baked(bake.Request{Module: module(tagged), Kernel: kernel, Arch: arch})
	got := map[string]string{}
	err := filepath.WalkDir(p.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == p.root {
			return err
		}
		info, err := d.Info()
		got[strings.TrimPrefix(name, p.root+"/")] = info.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const store, dir, file = "var/lib/drover/store", "drwx------", "-rw-------"
	tree := store + "/sha256/" + b.Tree
	want := map[string]string{
		"var": "drwxr-xr-x", "var/lib": "drwxr-xr-x", "var/lib/drover": "drwxr-xr-x", store: dir, store + "/sha256": dir,
		store + "/deliveries": dir, store + "/damaged": dir, store + "/incoming": dir, store + "/deliveries/" + b.Delivery + ".json": file,
		tree: dir, tree + "/lib": dir, tree + "/lib/modules": dir, tree + "/lib/modules/" + kernel: dir,
		tree + "/lib/modules/" + kernel + "/nic.ko": file,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node image (-want +got):\n%s", diff)
	}
}

// TestTampered: what is not as it was baked is no delivery, and a new one takes its place.
func TestTampered(t *testing.T) {
	for what, tamper := range map[string]func(tree string) error{
		"changed": func(tree string) error { return os.WriteFile(filepath.Join(tree, "nic.ko"), []byte("evil"), 0o600) },
		"added":   func(tree string) error { return os.WriteFile(filepath.Join(tree, "evil.ko"), nil, 0o600) },
		"removed": func(tree string) error { return os.Remove(filepath.Join(tree, "nic.ko")) },
	} {
		t.Run(what, func(t *testing.T) {
			p := newPlace(t)
			tagged, _ := p.push("nic:1", p.image(kernel, "1"))
			q := bake.Request{Module: module(tagged), Kernel: kernel, Arch: arch}
			b := p.baked(q)
			if err := tamper(p.state("store/sha256", b.Tree, "lib/modules", kernel)); err != nil {
				t.Fatal(err)
			}
			s := p.boot()
			if _, err := s.Open(b.Delivery); !errors.As(err, new(*store.DamagedError)) {
				t.Errorf("open: %v, want that it is damaged", err)
			}
			if held, err := s.Held(); err != nil || len(held) > 0 {
				t.Errorf("still held: %v, %v", held, err)
			}
			p.baked(q)
			if _, err := p.boot().Open(b.Delivery); err != nil {
				t.Errorf("baked anew: %v", err)
			}
		})
	}
}

// TestAgain: a tag that has moved brings its new content; a failure leaves the old.
func TestAgain(t *testing.T) {
	p := newPlace(t)
	tagged, _ := p.push("nic:1", p.image(kernel, "1"))
	q := bake.Request{Module: module(tagged), Kernel: kernel, Arch: arch}
	first := p.baked(q)
	p.push("nic:1", p.image("5.4.0", "2"))
	if _, err := p.bake(q); err == nil || !strings.Contains(err.Error(), "it has kernels 5.4.0") {
		t.Errorf("%v, want which kernels the image has", err)
	}
	if held, err := p.boot().Held(); err != nil || held[first.Delivery] != first.Tree {
		t.Errorf("held: %v, %v", held, err)
	}
	p.push("nic:1", p.image(kernel, "2"))
	second := p.baked(q)
	held, err := p.boot().Held()
	if diff := cmp.Diff(map[string]string{first.Delivery: second.Tree}, held); diff != "" || err != nil || first.Tree == second.Tree {
		t.Errorf("held: %v\n%s", err, diff)
	}
}

// TestRefused: what cannot be baked says why.
func TestRefused(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(p *place, q *bake.Request)
		says   string
	}{
		"no mapping": {func(_ *place, q *bake.Request) { q.Kernel = "5.4.0" }, "no kernel mapping of the Module team/nic matches kernel 5.4.0"},
		"no such kernel in the image": {func(_ *place, q *bake.Request) { q.Kernel = "6.6.6" },
			"the image has no /opt/lib/modules/6.6.6: it has kernels " + kernel},
		"another processor": {func(_ *place, q *bake.Request) { q.Arch = "arm64" }, "the image is not for linux/arm64, only for linux/amd64"},
		"no such image":     {func(p *place, q *bake.Request) { q.Module = module(p.host + "/none:1") }, "NAME_UNKNOWN"},
		"no such module": {func(_ *place, q *bake.Request) { q.Module.Spec.ModuleLoader.Container.Modprobe.ModuleName = "other" },
			"the image has no module other"},
		"built in the cluster": {func(_ *place, q *bake.Request) { q.Module.Spec.ModuleLoader.Container.Build = &v1beta1.Build{} },
			"built or signed in the cluster"},
		"loads nothing": {func(_ *place, q *bake.Request) { q.Module.Spec.ModuleLoader = nil }, "loads nothing"},
		"another image than the digest says": {func(p *place, q *bake.Request) {
			_, pinned := p.push("nic:2", p.image(kernel, "2"))
			q.Module, q.From = module(pinned), p.host+"/nic:1"
		}, "nic:1 is another image (sha256:"},
		"a state directory that leads out": {func(p *place, _ *bake.Request) {
			if err := os.Symlink(p.TempDir(), filepath.Join(p.root, "var")); err != nil {
				p.Fatal(err)
			}
		}, "escapes"},
		"an agent that works there": {func(p *place, _ *bake.Request) {
			if err := os.MkdirAll(p.state(), 0o755); err != nil {
				p.Fatal(err)
			}
			lock, err := boot.TryTake(p.state(), "an agent")
			if err != nil {
				p.Fatal(err)
			}
			p.Cleanup(func() { _ = lock.Release() })
		}, "an agent works in"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPlace(t)
			tagged, _ := p.push("nic:1", p.image(kernel, "1"))
			q := bake.Request{Module: module(tagged), Kernel: kernel, Arch: arch}
			tc.change(p, &q)
			if _, err := p.bake(q); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if left, err := filepath.Glob(p.state("store/*/*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestFromElsewhere: the identity is by the reference in the order, wherever the content is read.
func TestFromElsewhere(t *testing.T) {
	p := newPlace(t)
	image := p.image(kernel, "1")
	elsewhere, pinned := p.push("mirror/nic:1", image)
	_, digest, _ := strings.Cut(pinned, "@")
	layout := p.TempDir()
	if err := images.SaveLayout(layout, images.MultiArch(map[string]v1.Image{arch: image})); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{elsewhere, layout} {
		m := module("registry.example/nic@" + digest)
		if b := p.baked(bake.Request{Module: m, Kernel: kernel, Arch: arch, From: from}); b.Delivery != ordered(m) {
			t.Errorf("from %s: %+v", from, b)
		}
	}
}

// TestKernels: those of the node's image are found, also where /lib is a link.
func TestKernels(t *testing.T) {
	for _, target := range []string{"usr/lib", "/usr/lib"} {
		p := newPlace(t)
		kernels := filepath.Join(p.root, "usr/lib/modules", kernel)
		if err := errors.Join(os.MkdirAll(kernels, 0o755), os.Symlink(target, filepath.Join(p.root, "lib"))); err != nil {
			t.Fatal(err)
		}
		r, err := bake.Open(t.Context(), p.root, bake.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		found, err := r.Kernels()
		if err := errors.Join(err, r.Close()); err != nil || !slices.Equal(found, []string{kernel}) {
			t.Errorf("lib is a link to %s: %v, %v", target, found, err)
		}
	}
}

// TestKeptUntilOrdered: a store tells what came with the image from what was delivered.
func TestKeptUntilOrdered(t *testing.T) {
	p := newPlace(t)
	tagged, _ := p.push("nic:1", p.image(kernel, "1"))
	b := p.baked(bake.Request{Module: module(tagged), Kernel: kernel, Arch: arch})
	baked, err := p.boot().Baked()
	if err != nil || !maps.Equal(baked, map[string]string{b.Delivery: b.Tree}) {
		t.Errorf("%v, %v", baked, err)
	}
}
