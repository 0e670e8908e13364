// SPDX-License-Identifier: Apache-2.0

package sign_test

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// compressed as the kernel's build does it.
func compressed(t *testing.T, how string, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	var err error
	switch how {
	case "xz":
		w, err = xz.WriterConfig{CheckSum: xz.CRC32, DictCap: 1 << 20}.NewWriter(&out)
	case "zstd":
		w, err = zstd.NewWriter(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCompressedModulesAreSignedInside(t *testing.T) {
	key := keyOf(t, rsaKey())
	want, err := signFile("a.ko", module("a"), key, sign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, given := range map[string][]byte{
		"gzip": compressed(t, "gzip", module("a")), "xz": compressed(t, "xz", module("a")), "zstd": compressed(t, "zstd", module("a")),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := signFile("a.ko", given, key, sign.Options{})
			if err != nil {
				t.Fatal(err)
			}
			file, err := fstest.MapFS{"a.ko": {Data: got}}.Open("a.ko")
			if err != nil {
				t.Fatal(err)
			}
			inside, err := kmod.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			defer inside.Release()
			if string(inside.Compression) != name {
				t.Errorf("the result is compressed by %q", inside.Compression)
			}
			if !bytes.Equal(inside.Raw, want) {
				t.Error("what is inside is not what a plain module becomes")
			}
			if again, err := signFile("a.ko", given, key, sign.Options{}); err != nil || !bytes.Equal(again, got) {
				t.Errorf("a second time gives other bytes: %v", err)
			}
			if again, err := signFile("a.ko", got, key, sign.Options{}); err != nil || !bytes.Equal(again, got) {
				t.Errorf("signing what is signed changes it: %v", err)
			}
		})
	}
}

func TestWhatIsNoModuleIsRefusedByName(t *testing.T) {
	key := keyOf(t, rsaKey())
	executable := module("a")
	executable[16] = 2 // ET_EXEC
	for name, given := range map[string][]byte{
		"empty":                 nil,
		"text":                  []byte("modules.dep\n"),
		"program":               executable,
		"object without a name": bytes.ReplaceAll(module("a"), []byte(".modinfo"), []byte(".mod1nfo")),
		"compressed text":       compressed(t, "xz", []byte("modules.dep\n")),
		"damaged compression":   compressed(t, "gzip", module("a"))[:100],
		"header only":           module("a")[:64],
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signFile("/opt/lib/modules/6.1/some.file", given, key, sign.Options{})
			if !errors.Is(err, sign.ErrNotModule) || !strings.HasPrefix(err.Error(), "/opt/lib/modules/6.1/some.file: not a kernel module") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestSigningAgain(t *testing.T) {
	ours, others := keyOf(t, rsaKey()), keyOf(t, otherKey())
	by := func(key sign.Key, content []byte, o sign.Options) []byte {
		t.Helper()
		signed, err := signFile("a.ko", content, key, o)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	signed := by(ours, module("a"), sign.Options{})
	damaged := bytes.Clone(signed)
	damaged[len(damaged)-50] ^= 1                                  // in the value
	foreign := append(module("a"), signed[len(module("a"))-1:]...) // a signature over something else
	for name, tc := range map[string]struct {
		given []byte
		o     sign.Options
		want  int
	}{
		"the same":             {given: signed, want: 1},
		"another hash":         {given: signed, o: sign.Options{Hash: crypto.SHA512}, want: 2},
		"another form of name": {given: signed, o: sign.Options{BySubjectKeyID: true}, want: 2},
		"another's":            {given: by(others, module("a"), sign.Options{}), want: 2},
		"ours below another's": {given: by(others, signed, sign.Options{}), want: 3},
		"a damaged one":        {given: damaged, want: 2},
		"one of another file":  {given: foreign, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := by(ours, tc.given, tc.o)
			if !bytes.HasPrefix(got, tc.given) {
				t.Error("what was there is not kept")
			}
			if all := signature.List(got); len(all) != tc.want {
				t.Errorf("%d signatures instead of %d: %+v", len(all), tc.want, all)
			}
			if err := signature.Verify(got, ours.Certificate()); err != nil {
				t.Error(err)
			}
			if again := by(ours, got, tc.o); !bytes.Equal(again, got) {
				t.Error("once more changes it")
			}
		})
	}
}

func TestVerifyTellsWhoseAndWhat(t *testing.T) {
	for name, private := range map[string]crypto.Signer{"RSA": rsaKey(), "ECDSA": ecKey()} {
		t.Run(name, func(t *testing.T) {
			key := keyOf(t, private)
			for _, o := range []sign.Options{{}, {BySubjectKeyID: true}} {
				signed, err := signFile("a.ko", module("a"), key, o)
				if err != nil {
					t.Fatal(err)
				}
				if err := signature.Verify(signed, key.Certificate()); err != nil {
					t.Error(err)
				}
				changed := bytes.Clone(signed)
				changed[len(changed)/3] ^= 0x40
				if err := signature.Verify(changed, key.Certificate()); !errors.Is(err, signature.ErrInvalid) {
					t.Errorf("a changed module: %v", err)
				}
			}
			if err := signature.Verify(module("a"), key.Certificate()); !errors.Is(err, signature.ErrUnsigned) {
				t.Errorf("an unsigned module: %v", err)
			}
		})
	}
	ours := keyOf(t, rsaKey())
	// The same names and identifiers, another key: an impostor.
	theirs, err := signFile("a.ko", module("a"), keyOf(t, otherKey()), sign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := signature.Verify(theirs, ours.Certificate()); !errors.Is(err, signature.ErrInvalid) {
		t.Errorf("an impostor's: %v", err)
	}
	if err := signature.Verify(theirs, golden(t).Certificate()); !errors.Is(err, signature.ErrOtherSigner) ||
		!strings.Contains(err.Error(), "Example: Prüfschlüssel") {
		t.Errorf("another's: %v", err)
	}
}

// golden is a key of the test's own, made by openssl.
func golden(t *testing.T) sign.Key {
	t.Helper()
	return must(sign.ParseKey(must(os.ReadFile("testdata/key")), must(os.ReadFile("testdata/cert"))))
}

// The files were written by sign-file, so that these bytes also hold where there is none.
func TestGolden(t *testing.T) {
	key := golden(t)
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-"))
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(filepath.Join("testdata", "module"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := sign.Trailer(content, key, way.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTheHeapDoesNotGrowWithTheModule: what a module takes is outside of it, and given back when it
// is signed.
func TestTheHeapDoesNotGrowWithTheModule(t *testing.T) {
	const small, big, more = 4 << 20, 24 << 20, 5 << 20 // the reader of xz makes some garbage
	key, mark := keyOf(t, ecKey()), bytes.Repeat([]byte("padding "), big/8)
	for _, how := range []string{"plain", "gzip", "xz", "zstd"} {
		t.Run(how, func(t *testing.T) {
			used := map[int]uint64{}
			for _, size := range []int{small, big} {
				content := append(module("a"), mark[:size]...)
				if how != "plain" {
					content = compressed(t, how, content)
				}
				path := filepath.Join(t.TempDir(), "a.ko")
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				from, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				changed, err := sign.File("a.ko", from, io.Discard, key, sign.Options{})
				runtime.ReadMemStats(&after)
				if err := errors.Join(err, from.Close()); err != nil || !changed {
					t.Fatalf("changed: %t, %v", changed, err)
				}
				used[size] = after.TotalAlloc - before.TotalAlloc
			}
			if used[big] > used[small]+more {
				t.Errorf("%d MiB take %d bytes of the heap, %d MiB %d", big>>20, used[big], small>>20, used[small])
			}
		})
	}
}
