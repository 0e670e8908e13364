// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestEqualSpecsGiveEqualDigests(t *testing.T) {
	spec := Spec{
		Files: map[string]File{"/bin/tool": Program([]byte("ELF")), "/opt/lib/x.ko": {Content: []byte("ko")},
			"/opt/link": {Link: "lib/x.ko"}},
		Entrypoint: []string{"/bin/tool"}, User: "65532",
	}
	digest := func(spec Spec) string {
		image, err := Image(spec)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return hash.String()
	}
	first := digest(spec)
	if second := digest(spec); first != second {
		t.Errorf("digests differ: %s, %s", first, second)
	}
	spec.User = "0"
	if digest(spec) == first {
		t.Error("another user, the same digest")
	}
}

func TestImageRefusesRelativePaths(t *testing.T) {
	if _, err := Image(Spec{Files: map[string]File{"bin/tool": {}}}); err == nil {
		t.Error("accepted")
	}
}

func TestContentSurvivesDownAndUp(t *testing.T) {
	r, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Down(); err != nil {
			t.Error(err)
		}
	})
	image, err := Image(Spec{Files: map[string]File{"/a": {Content: []byte("b")}}})
	if err != nil {
		t.Fatal(err)
	}
	tagged, pinned, err := r.Push(t.Context(), "some/image:1", image)
	if err != nil {
		t.Fatal(err)
	}
	if tagged != "registry.test/some/image:1" || !strings.HasPrefix(pinned, "registry.test/some/image@sha256:") {
		t.Errorf("references %s and %s", tagged, pinned)
	}
	manifest := fmt.Sprintf("http://127.0.0.1:%d/v2/some/image/manifests/1", r.Port())
	if err := r.Down(); err != nil {
		t.Fatal(err)
	}
	if response, err := http.Get(manifest); err == nil {
		t.Errorf("answers %s while down; closing: %v", response.Status, response.Body.Close())
	}
	if err := r.Up(); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("status %s, %v", response.Status, err)
	}
}

// up starts a registry for a test.
func up(t *testing.T) *Registry {
	t.Helper()
	r, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Down(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func push(t *testing.T, r *Registry, repository string, files map[string]File) string {
	t.Helper()
	image, err := Image(Spec{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Push(t.Context(), repository, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// object is the smallest file that a linker takes, with or without what makes it a kernel module.
func object(t *testing.T, section string) []byte {
	t.Helper()
	names := "\x00" + section + "\x00.shstrtab\x00"
	var out bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: 64, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		},
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64 + 3*64},
		elf.Section64{Name: uint32(len(section) + 2), Type: uint32(elf.SHT_STRTAB), Off: 64 + 3*64, Size: uint64(len(names))},
		[]byte(names),
	} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestPushesAreLookedThrough: a module is one by its name or by its content, and only a signature
// at its end makes it signed.
func TestPushesAreLookedThrough(t *testing.T) {
	module := object(t, ".modinfo")
	signed := append(slices.Clone(module), "PKCS#7"+signatureMagic...)
	r := up(t)
	digest := push(t, r, "made/x:1", map[string]File{
		"/opt/signed.ko": {Content: signed}, "/opt/unsigned.ko": {Content: module}, "/opt/renamed": {Content: module},
		"/opt/packed.ko.xz": {Content: []byte("xz")},
		"/opt/inside.ko":    {Content: append(slices.Clone(signed), 0)}, "/opt/plain.o": {Content: object(t, ".text")},
		"/opt/text": {Content: []byte(signatureMagic)},
	})
	var got []string
	for _, p := range r.Pushes() {
		switch {
		case p.Repository != "made/x":
			t.Errorf("a push to %q", p.Repository)
		case p.Manifest:
			got = append(got, "manifest "+p.Reference)
		case len(p.Modules) > 0:
			got = append(got, "layer "+strings.Join(p.Unsigned(), " "))
			if len(p.Modules) != 5 || !p.Modules["/opt/signed.ko"] {
				t.Errorf("the modules are %v", p.Modules)
			}
		}
	}
	want := []string{"layer /opt/inside.ko /opt/packed.ko.xz /opt/renamed /opt/unsigned.ko", "manifest 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q instead of %q (%s)", got, want, digest)
	}
}

// TestWipe: a repository is forgotten by tag, by digest and by its layers; others keep what is the
// same in them.
func TestWipe(t *testing.T) {
	r := up(t)
	own, shared := map[string]File{"/own": {Content: []byte("a")}}, map[string]File{"/shared": {Content: []byte("b")}}
	digest := push(t, r, "made/x:1", own)
	push(t, r, "made/x:2", shared)
	push(t, r, "made/y:1", shared)
	if err := r.Wipe(t.Context(), "made/x"); err != nil {
		t.Fatal(err)
	}
	pull := func(reference string) error {
		image, err := name.ParseReference(fmt.Sprintf("127.0.0.1:%d/%s", r.Port(), reference))
		if err != nil {
			t.Fatal(err)
		}
		found, err := remote.Image(image)
		if err != nil {
			return err
		}
		return validate.Image(found)
	}
	for _, reference := range []string{"made/x:1", "made/x:2", "made/x@" + digest} {
		if err := pull(reference); !IsMissing(err) {
			t.Errorf("%s is still there: %v", reference, err)
		}
	}
	if err := pull("made/y:1"); err != nil {
		t.Errorf("another repository has lost something: %v", err)
	}
	layers, err := Image(Spec{Files: own})
	if err != nil {
		t.Fatal(err)
	}
	sent := len(r.Pushes())
	if _, _, err := r.Push(t.Context(), "made/x:1", layers); err != nil {
		t.Fatal(err)
	}
	if again := len(r.Pushes()) - sent; again != 3 {
		t.Errorf("%d pushes of an image whose configuration, layer and manifest were forgotten", again)
	}
	if err := pull("made/x:1"); err != nil {
		t.Error(err)
	}
}
