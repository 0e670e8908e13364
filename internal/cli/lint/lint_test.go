// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"crypto"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/internal/testkit/clitest"
)

const (
	kernel   = "6.1.0-44-amd64"
	vermagic = kernel + " SMP preempt mod_unload modversions "
)

// files writes modules as an image of that kernel has them, and gives them by their path in the
// image.
func files(t *testing.T, modules ...synth.Module) map[string]string {
	t.Helper()
	dir, found := t.TempDir(), map[string]string{}
	for _, m := range modules {
		if m.Vermagic == "" {
			m.Vermagic = vermagic
		}
		local := filepath.Join(dir, m.Name+".ko")
		if err := os.WriteFile(local, m.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		found[images.KmodPath(kernel, "extra/"+m.Name+".ko")] = local
	}
	return found
}

func image(t *testing.T, arch string, modules ...synth.Module) v1.Image {
	t.Helper()
	made, err := images.KmodImage(files(t, modules...), arch)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestImages lints images of all sorts in all forms.
func TestImages(t *testing.T) {
	good := synth.Module{Name: "nic", ModVersions: true, Imports: []string{"printk"}, Depends: []string{"helper"},
		Machine: synth.MachineX86_64, Firmware: []string{"nic.fw"}}
	helper := synth.Module{Name: "helper", ModVersions: true, Machine: synth.MachineX86_64}
	damaged := synth.Module{Name: "nic", ModVersions: true, Machine: synth.MachineX86_64, Signed: true}
	other := synth.Module{Name: "nic", Vermagic: "5.10.0-1 SMP mod_unload ", Machine: synth.MachineX86_64}
	foreign := synth.Module{Name: "nic", ModVersions: true, Machine: synth.MachineAArch64}
	layout := func(byArch map[string]v1.Image) func(*testing.T) string {
		return func(t *testing.T) string {
			folder := t.TempDir()
			if err := images.SaveLayout(folder, images.MultiArch(byArch)); err != nil {
				t.Fatal(err)
			}
			return folder
		}
	}
	amd64 := func(modules ...synth.Module) func(*testing.T) string {
		return layout(map[string]v1.Image{"amd64": image(t, "amd64", modules...)})
	}
	symvers := filepath.Join(t.TempDir(), "Module.symvers")
	if err := os.WriteFile(symvers, []byte("0x00000000\tnothing\tvmlinux\tEXPORT_SYMBOL\t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		image func(*testing.T) string
		args  string
		then  int
		says  []string
	}{
		"an OCI layout": {image: amd64(good, helper), says: []string{
			"No check failed for kernel " + kernel + "; 5 checks need more facts", "linux/amd64", "ok         nic",
			"dependencies  all are available", "--symvers", "nic.fw", "signature     none",
		}},
		"an archive": {
			image: func(t *testing.T) string {
				file := filepath.Join(t.TempDir(), "image.tar")
				if err := images.SaveTarball(file, "example.com/nic:1", image(t, "amd64", good, helper)); err != nil {
					t.Fatal(err)
				}
				return file
			},
			args: "--module nic", says: []string{"No check failed for kernel"},
		},
		"a registry": {
			image: func(t *testing.T) string {
				server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
				t.Cleanup(server.Close)
				reference := strings.TrimPrefix(server.URL, "http://") + "/nic:1"
				if err := images.Push(t.Context(), reference, image(t, "amd64", good)); err != nil {
					t.Fatal(err)
				}
				return reference
			},
			says: []string{"not in the image: helper", "--kernel-tree"},
		},
		"with CRCs, for another release": {
			image: amd64(synth.Module{Name: "nic", ModVersions: true, Vermagic: "5.10.0-1 SMP mod_unload modversions ",
				Machine: synth.MachineX86_64}),
			says: []string{"2 checks need more facts", "it was built for 5.10.0-1, which the kernel allows only if all symbol CRCs are equal " +
				"(--symvers)"},
		},
		"a damaged signature": {image: amd64(damaged), then: 1,
			says: []string{"SignatureRejected", "cannot be read", "Next step: sign the module"}},
		"built for another kernel": {image: amd64(other), then: 1, says: []string{
			"Module nic of the image does not fit kernel " + kernel + ": VermagicMismatch.\nNext step: build it against this kernel's headers",
			"5.10.0-1", "FAILED     nic",
		}},
		"for another machine on one platform": {
			image: layout(map[string]v1.Image{"amd64": image(t, "amd64", good), "arm64": image(t, "arm64", helper)}), then: 1,
			says: []string{"linux/amd64", "linux/arm64", "VermagicMismatch", "x86_64"},
		},
		"one platform only": {
			image: layout(map[string]v1.Image{"amd64": image(t, "amd64", foreign), "arm64": image(t, "arm64", foreign)}),
			args:  "--platform linux/arm64", says: []string{"No check failed for kernel"},
		},
		"a platform that is not there": {image: amd64(good), args: "--platform linux/s390x", then: 2,
			says: []string{"not for linux/s390x, only for linux/amd64"}},
		"without a symbol": {image: amd64(good, helper), args: "--symvers " + symvers, then: 1,
			says: []string{"UnknownSymbol", "printk"}},
		"a kernel that it knows not": {image: amd64(good), args: "--kernel 4.4", then: 1,
			says: []string{"the image has no /opt/lib/modules/4.4; it has modules for " + kernel, "ImageUnreadable"}},
		"no such file":                   {image: func(*testing.T) string { return "./no-such-thing" }, then: 2, says: []string{"no such file"}},
		"for programs":                   {image: amd64(other), args: "-o json", then: 1, says: []string{`"reason": "VermagicMismatch"`}},
		"a module that it does not have": {image: amd64(good), args: "--module gpu", then: 1, says: []string{"gpu", "ImageUnreadable"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			args := append([]string{tc.image(t), "--kernel", kernel}, strings.Fields(tc.args)...)
			out, code := clitest.Run(t, &rest.Config{}, "default", lint.NewCommand, args...)
			if code != tc.then {
				t.Errorf("it ends with %d, want %d", code, tc.then)
			}
			for _, words := range tc.says {
				if !strings.Contains(out, words) {
					t.Errorf("it does not say %q:\n%s", words, out)
				}
			}
			if strings.HasPrefix(name, "an OCI") || name == "built for another kernel" {
				t.Log("\n" + out)
			}
		})
	}
}

// TestSignaturesAreListed: each with its signer and hash, the kernel's first.
func TestSignaturesAreListed(t *testing.T) {
	modules := files(t, synth.Module{Name: "nic", ModVersions: true, Machine: synth.MachineX86_64})
	for _, file := range modules {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		content = signedBy(t, signedBy(t, content, "Distribution", crypto.SHA256), "Drivers", crypto.SHA512)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := images.KmodImage(modules, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := images.SaveLayout(folder, images.MultiArch(map[string]v1.Image{"amd64": made})); err != nil {
		t.Fatal(err)
	}
	out, code := clitest.Run(t, &rest.Config{}, "default", lint.NewCommand, folder, "--kernel", kernel)
	want := regexp.MustCompile(`signature +by the key with serial number \w+ issued by "Drivers" \(sha512\): only the node knows whether it trusts the signature; ` +
		`kernels do not look at the one before, by the key with serial number \w+ issued by "Distribution" \(sha256\)`)
	if code != 0 || !want.MatchString(out) {
		t.Errorf("exit code %d, and it does not say %s:\n%s", code, want, out)
	}
}

func signedBy(t *testing.T, content []byte, name string, hash crypto.Hash) []byte {
	t.Helper()
	owner, err := synth.NewOwner(name)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := owner.Sign(content, synth.SignOptions{Hash: hash})
	if err != nil {
		t.Fatal(err)
	}
	return signed
}
