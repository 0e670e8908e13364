// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/build/step"
	"github.com/drover-project/drover/test/vm/registry"
)

const (
	onKernel = "6.1.0-1-amd64"
	module   = "/opt/lib/modules/" + onKernel + "/extra/a.ko"
	glob     = "/opt/lib/modules/*/extra/*.ko"
)

func moduleImage(t *testing.T, files map[string]registry.File) v1.Image {
	t.Helper()
	image, err := registry.Image(registry.Spec{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func isThere(t *testing.T, file string) bool {
	t.Helper()
	_, err := os.Lstat(file)
	return err == nil
}

func TestCheck(t *testing.T) {
	s := newServer(t)
	_, cert := certificate(t)
	_, otherCert := certificate(t)
	signer, err := readSigner(cert)
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "kmods/a:prebuilt", image)
	for tag, notes := range map[string]map[string]string{
		"ours":   {result.HashAnnotation: "h1"},
		"signed": {result.HashAnnotation: "h1", result.SignerAnnotation: signer.Fingerprint},
	} {
		one, ok := mutate.Annotations(image, notes).(v1.Image)
		if !ok {
			t.Fatal("no image")
		}
		s.put(t, "kmods/a:"+tag, one)
	}
	for name, c := range map[string]struct {
		tag, hash, cert string
		want            result.State
	}{
		"nothing there":              {"missing", "h1", "", result.StateMissing},
		"somebody else's":            {"prebuilt", "h1", cert, result.StatePrebuilt},
		"ours":                       {"ours", "h1", "", result.StateCurrent},
		"of other inputs":            {"ours", "h2", "", result.StateOutdated},
		"not signed, though it must": {"ours", "h1", cert, result.StateOutdated},
		"signed":                     {"signed", "h1", cert, result.StateCurrent},
		"signed with another key":    {"signed", "h1", otherCert, result.StateOutdated},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			args := append([]string{"check", "--image", s.image("kmods/a:" + c.tag), "--hash", c.hash, "--state", state}, s.flags(t)...)
			if c.cert != "" {
				args = append(args, "--cert", c.cert)
			}
			r := succeed(t, args...)
			if r.State != c.want || (r.Digest == "") != (c.want == result.StateMissing) || (r.Signer == nil) != (c.cert == "") {
				t.Errorf("result %+v", r)
			}
			done := c.want == result.StateCurrent || c.want == result.StatePrebuilt
			if isThere(t, filepath.Join(state, "done")) != done {
				t.Errorf("done is %t", !done)
			}
			// Further steps do nothing when there is nothing to do, whatever else they are told.
			if done {
				for _, step := range [][]string{
					{"pull", "--image", "none.invalid/x", "--layout", "/nowhere"}, {"push", "--image", "none.invalid/x", "--layout", "/nowhere"},
					{"pack", "--root", "/nowhere", "--kernel", onKernel, "--layout", "/nowhere"},
					{"sign", "--key", "/nowhere", "--cert", "/nowhere", "--file", "/x", "--layout", "/nowhere"},
				} {
					if r := succeed(t, append(step, "--state", state)...); !r.Skipped {
						t.Errorf("%s was not skipped", step[0])
					}
				}
			}
		})
	}
}

func TestFailuresOfTheRegistryAreToldApart(t *testing.T) {
	s := newServer(t)
	good := s.flags(t)
	check := func(more ...string) []string {
		return append([]string{"check", "--image", s.image("kmods/a:1"), "--hash", "h"}, more...)
	}
	wrong := filepath.Join(t.TempDir(), "config.json")
	write(t, wrong, fmt.Appendf(nil, `{%q:{"username":"robot","password":"wrong"}}`, strings.TrimPrefix(s.URL, "https://")))
	fails(t, result.ReasonUnauthorized, check("--ca", good[1], "--retry-delay", "1ms")...)
	fails(t, result.ReasonUnauthorized, check("--ca", good[1], "--auth", wrong, "--retry-delay", "1ms")...)
	fails(t, result.ReasonTLS, check("--auth", good[3], "--ca", "/no/such/file", "--retry-delay", "1ms")...)
	fails(t, result.ReasonInvalid, check("--ca", good[3])...)
	fails(t, result.ReasonInvalid, check("--auth", "/no/such/file")...)
	fails(t, result.ReasonInvalid, "check", "--image", "NOT A REFERENCE", "--hash", "h")
	fails(t, result.ReasonNotFound, append([]string{"pull", "--image", s.image("kmods/a:1"), "--layout", t.TempDir()}, good...)...)
	succeed(t, check("--auth", good[3], "--skip-tls-verify")...)
	succeed(t, check("--account-auth", good[3], "--account-auth", "/no/such/file", "--skip-tls-verify")...)

	s.faults = slices.Repeat([]int{503}, 100)
	fails(t, result.ReasonUnavailable, check(good...)...)
	s.faults = []int{503, 429, 500}
	if r := succeed(t, check(good...)...); r.State != result.StateMissing || len(s.faults) != 0 {
		t.Errorf("result %+v, %d faults left", r, len(s.faults))
	}
	s.Close()
	fails(t, result.ReasonUnavailable, check(good...)...)
}

// TestCompiledModulesBecomeASignedImage goes all the way of a native build, twice.
func TestCompiledModulesBecomeASignedImage(t *testing.T) {
	s := newServer(t)
	key, cert := certificate(t)
	var digests []string
	for at := range 2 {
		root, layout := t.TempDir(), t.TempDir()
		write(t, filepath.Join(root, "a.ko"), []byte("\x7fELF a"))
		write(t, filepath.Join(root, "sub/b.ko"), []byte("\x7fELF b"))
		write(t, filepath.Join(root, "a.c"), []byte("source"))
		packed := succeed(t, "pack", "--root", root, "--kernel", onKernel, "--arch", "arm64", "--layout", layout)
		if diff := cmp.Diff([]string{module, filepath.Dir(module) + "/sub/b.ko"}, packed.Files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		signed := succeed(t, "sign", "--layout", layout, "--key", key, "--cert", cert, "--file", glob, "--file",
			"/opt/lib/modules/*/extra/*/*.ko", "--file", "/none/*.ko")
		if signed.Signed != 2 || signed.Signer == nil || signed.Signer.NotAfter.Unix() != 2_000_000_000 || len(signed.Signer.Fingerprint) != 64 ||
			!slices.Equal(signed.Unmatched, []string{"/none/*.ko"}) {
			t.Errorf("result %+v", signed)
		}
		again := succeed(t, "sign", "--layout", layout, "--key", key, "--cert", cert, "--file", glob)
		if again.Digest != signed.Digest {
			t.Errorf("signed twice, digests %s and %s", signed.Digest, again.Digest)
		}
		image := s.image("kmods/a:" + fmt.Sprint(at))
		pushed := succeed(t, append([]string{"push", "--image", image, "--layout", layout, "--hash", "h", "--cert", cert}, s.flags(t)...)...)
		digests = append(digests, pushed.Digest)
		if r := succeed(t, append([]string{"check", "--image", image, "--hash", "h", "--cert", cert},
			s.flags(t)...)...); r.State != result.StateCurrent || r.Digest != pushed.Digest {
			t.Errorf("check finds %+v, pushed was %s", r, pushed.Digest)
		}
		if left, err := filepath.Glob(filepath.Join(layout, ".work-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("the same files have the digests %v", digests)
	}
	image := s.get(t, "kmods/a:0")
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Architecture != "arm64" {
		t.Errorf("configuration %+v, %v", config, err)
	}
}

// TestSigningSendsLittle: of an image in another repository only what was changed is sent, and what
// is there is not sent again.
func TestSigningSendsLittle(t *testing.T) {
	s := newServer(t)
	key, cert := certificate(t)
	content := append([]byte("\x7fELF"), make([]byte, 64<<10)...)
	large, err := random.Layer(8<<20, "application/vnd.docker.image.rootfs.diff.tar.gzip")
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := mutate.AppendLayers(moduleImage(t, map[string]registry.File{module: {Content: content}}), large)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "unsigned/a:1", unsigned)
	layout := t.TempDir()
	succeed(t, append([]string{"pull", "--image", s.image("unsigned/a:1"), "--layout", layout}, s.flags(t)...)...)
	succeed(t, "sign", "--layout", layout, "--key", key, "--cert", cert, "--file", glob)
	s.total()
	push := append([]string{"push", "--image", s.image("signed/a:1"), "--layout", layout, "--hash", "h", "--mount-from",
		s.image("unsigned/a:1")}, s.flags(t)...)
	succeed(t, push...)
	if sent := s.total(); sent > 2*int64(len(content)) || s.mounts != 2 {
		t.Errorf("%d bytes were sent for a module of %d, %d layers mounted", sent, len(content), s.mounts)
	}
	succeed(t, push...)
	if sent := s.total(); sent > 4<<10 {
		t.Errorf("%d bytes were sent the second time", sent)
	}
	if err := validate.Image(s.get(t, "signed/a:1")); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotOursIsNeverOverwritten(t *testing.T) {
	s := newServer(t)
	theirs := moduleImage(t, map[string]registry.File{"/theirs": {}})
	s.put(t, "kmods/a:1", theirs)
	root, layout := t.TempDir(), t.TempDir()
	write(t, filepath.Join(root, "a.ko"), []byte("\x7fELF"))
	succeed(t, "pack", "--root", root, "--kernel", onKernel, "--layout", layout)
	fails(t, result.ReasonPrebuilt, append([]string{"push", "--image", s.image("kmods/a:1"), "--layout", layout, "--hash", "h"},
		s.flags(t)...)...)
	want, err := theirs.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.get(t, "kmods/a:1").Digest(); err != nil || got != want {
		t.Errorf("it was overwritten: %s, %v", got, err)
	}
	pinned := s.image("kmods/a@sha256:" + strings.Repeat("a", 64))
	fails(t, result.ReasonInvalid, append([]string{"push", "--image", pinned, "--layout", layout, "--hash", "h"}, s.flags(t)...)...)
}

// TestWhatWasPushedMeanwhileStays: a Job's pod that was on a lost node may come back after another
// Job has pushed the same inputs.
func TestWhatWasPushedMeanwhileStays(t *testing.T) {
	s := newServer(t)
	push := func(content, hash string) result.Result {
		root, layout := t.TempDir(), t.TempDir()
		write(t, filepath.Join(root, "a.ko"), []byte("\x7fELF"+content))
		succeed(t, "pack", "--root", root, "--kernel", onKernel, "--layout", layout)
		return succeed(t, append([]string{"push", "--image", s.image("kmods/a:1"), "--layout", layout, "--hash", hash}, s.flags(t)...)...)
	}
	first := push("one", "h")
	if again := push("another build", "h"); again.Digest != first.Digest || again.State != result.StateCurrent {
		t.Errorf("pushed was %s, and then %+v", first.Digest, again)
	}
	if got, err := s.get(t, "kmods/a:1").Digest(); err != nil || got.String() != first.Digest {
		t.Errorf("the registry has %s, %v", got, err)
	}
	if other := push("another build", "other inputs"); other.Digest == first.Digest || other.State != result.StateOutdated {
		t.Errorf("of other inputs: %+v", other)
	}
}

func TestPushIsTriedAgain(t *testing.T) {
	s := newServer(t)
	root, layout := t.TempDir(), t.TempDir()
	write(t, filepath.Join(root, "a.ko"), []byte("\x7fELF"))
	succeed(t, "pack", "--root", root, "--kernel", onKernel, "--layout", layout)
	push := append([]string{"push", "--image", s.image("kmods/a:1"), "--layout", layout, "--hash", "h"}, s.flags(t)...)
	s.faults = []int{500, 429, 502, 0, 503, 0, 504}
	succeed(t, push...)
	if err := validate.Image(s.get(t, "kmods/a:1")); err != nil {
		t.Error(err)
	}
}

func TestSignRefuses(t *testing.T) {
	key, cert := certificate(t)
	layoutOf := func(files map[string]registry.File) string {
		dir := t.TempDir()
		image := moduleImage(t, files)
		layers, err := image.Layers()
		if err == nil {
			err = ocidir.Write(dir, image, layers)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	good := layoutOf(map[string]registry.File{module: {Content: []byte("\x7fELF")}})
	text := layoutOf(map[string]registry.File{module: {Content: []byte("#!/bin/sh")}})
	linked := layoutOf(map[string]registry.File{module: {Content: []byte("\x7fELF")}})
	if err := os.Remove(filepath.Join(linked, "index.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(key, filepath.Join(linked, "index.json")); err != nil {
		t.Fatal(err)
	}
	sign := func(layout string, more ...string) []string {
		return append([]string{"sign", "--layout", layout, "--key", key, "--cert", cert}, more...)
	}
	fails(t, result.ReasonNotModule, sign(text, "--file", glob)...)
	fails(t, result.ReasonNothingToSign, sign(good, "--file", "/opt/*.ko")...)
	fails(t, result.ReasonInvalid, sign(good, "--file", "opt/*.ko")...)
	fails(t, result.ReasonInvalid, sign("/nowhere", "--file", glob)...)
	fails(t, result.ReasonImageRefused, sign(linked, "--file", glob)...)
	fails(t, result.ReasonKey, "sign", "--layout", good, "--key", cert+".missing", "--cert", cert, "--file", glob)
	fails(t, result.ReasonKey, "sign", "--layout", good, "--key", key, "--cert", key, "--file", glob)
}

func TestPackTakesNothingFromOutside(t *testing.T) {
	root, layout := t.TempDir(), t.TempDir()
	secret := filepath.Join(t.TempDir(), "key")
	write(t, secret, []byte("secret"))
	if err := os.Symlink(secret, filepath.Join(root, "a.ko")); err != nil {
		t.Fatal(err)
	}
	pack := []string{"pack", "--root", root, "--kernel", onKernel, "--layout", layout}
	if _, err := run(t, pack...); err == nil {
		t.Error("a link that leads out was followed")
	}
	fails(t, result.ReasonInvalid, append(pack, "--artifact", "*.none")...)
	fails(t, result.ReasonInvalid, append(pack, "--artifact", "../*")...)
	fails(t, result.ReasonInvalid, "pack", "--root", root, "--kernel", "../x", "--layout", layout)
}

// TestSourceIsTheOneThatWasDeclared: a ConfigMap that has changed since is refused, and the
// kubelet's own entries are no source.
func TestSourceIsTheOneThatWasDeclared(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("m.c", "int x;")
	if err := os.Mkdir(filepath.Join(from, "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := source{from: from, to: to, digest: result.SourceDigest(map[string][]byte{"m.c": []byte("int x;")})}
	if err := o.copy(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "m.c")); err != nil || string(text) != "int x;" {
		t.Errorf("%q, %v", text, err)
	}
	put("m.c", "int y;")
	if err := o.copy(); !errors.Is(err, step.ErrInvalid) {
		t.Errorf("changed: %v", err)
	}
}
