// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/test/vm/registry"
)

// fitting is a module as the kernel has them.
func fitting(name string) synth.Module {
	return synth.Module{Name: name, Vermagic: onKernel + " SMP mod_unload ", Machine: synth.MachineX86_64}
}

// TestExamine says of images in a registry whether they fit the kernel, and why not.
func TestExamine(t *testing.T) {
	s := newServer(t)
	other := fitting("a")
	other.Vermagic = "5.10.0-1-amd64 SMP mod_unload "
	machine := fitting("a")
	machine.Machine = synth.MachineAArch64
	for tag, content := range map[string][]byte{"fits": fitting("a").Bytes(), "other": other.Bytes(), "machine": machine.Bytes(),
		"damaged": []byte("\x7fELF")} {
		s.put(t, "kmods/a:"+tag, moduleImage(t, map[string]registry.File{module: {Content: content}}))
	}
	s.put(t, "kmods/a:elsewhere", moduleImage(t,
		map[string]registry.File{strings.Replace(module, onKernel, "5.10.0", 1): {Content: fitting("a").Bytes()}}))
	s.index(t, "kmods/a:index", "arm64", moduleImage(t, map[string]registry.File{module: {Content: fitting("a").Bytes()}}))
	cases := map[string]struct {
		args   []string
		reason result.Reason
		unfit  string
		says   string
	}{
		"fits":      {},
		"other":     {reason: result.ReasonUnfit, unfit: v1beta1.ReasonVermagicMismatch, says: "5.10.0-1-amd64"},
		"machine":   {reason: result.ReasonUnfit, says: "kernel module a"},
		"damaged":   {reason: result.ReasonUnfit, unfit: v1beta1.ReasonImageUnreadable},
		"elsewhere": {reason: result.ReasonUnfit, unfit: v1beta1.ReasonImageUnreadable, says: "modules for 5.10.0"},
		"index":     {reason: result.ReasonUnfit, unfit: v1beta1.ReasonPullFailed, says: "not for linux/amd64"},
		"none":      {reason: result.ReasonNotFound},
	}
	for tag, tc := range cases {
		t.Run(tag, func(t *testing.T) {
			args := slices.Concat([]string{"examine", "--image", s.image("kmods/a:" + tag), "--kernel", onKernel, "--arch", "amd64",
				"--module", "a"}, s.flags(t))
			if tc.reason == "" {
				if r := succeed(t, args...); r.Digest == "" || r.Unfit != "" {
					t.Errorf("result %+v", r)
				}
				return
			}
			r := fails(t, tc.reason, args...)
			if !strings.Contains(r.Error, tc.says) || tc.unfit != "" && r.Unfit != tc.unfit || tc.reason == result.ReasonUnfit && r.Unfit == "" {
				t.Errorf("result %+v, want %s %q", r, tc.unfit, tc.says)
			}
		})
	}
}

// TestExamineLooksAtWhatWasMade in the layout, but at the registry's image where check has found it
// there.
func TestExamineLooksAtWhatWasMade(t *testing.T) {
	s := newServer(t)
	root, layout, state := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(root, "a.ko"), fitting("a").Bytes())
	packed := succeed(t, "pack", "--root", root, "--kernel", onKernel, "--arch", "amd64", "--layout", layout)
	image := s.image("kmods/a:there")
	examine := slices.Concat([]string{"examine", "--image", image, "--kernel", onKernel, "--layout", layout, "--state", state, "--arch",
		"amd64"}, s.flags(t))
	if r := succeed(t, examine...); r.Digest != packed.Digest {
		t.Errorf("%s was examined, %s was made", r.Digest, packed.Digest)
	}
	other := moduleImage(t, map[string]registry.File{module: {Content: fitting("a").Bytes()}})
	s.put(t, "kmods/a:there", other)
	write(t, filepath.Join(state, doneFile), nil)
	want, err := other.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if r := succeed(t, examine...); r.Digest != want.String() {
		t.Errorf("%s was examined, %s was found", r.Digest, want)
	}
}

// index pushes an index with the image for one processor.
func (s *server) index(t *testing.T, repository, arch string, image v1.Image) {
	t.Helper()
	all := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	if err := remote.WriteIndex(s.tag(t, repository), all, s.options()...); err != nil {
		t.Fatal(err)
	}
}
