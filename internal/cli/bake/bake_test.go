// SPDX-License-Identifier: Apache-2.0

package bake_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/images"
	baking "github.com/drover-project/drover/internal/bake"
	"github.com/drover-project/drover/internal/cli/bake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/internal/testkit/clitest"
)

const (
	kernel = "6.1.0-1-test"
	file   = `
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: nic}
spec:
  moduleLoader:
    container:
      modprobe: {moduleName: nic}
      kernelMappings: [{regexp: "^6", containerImage: "registry.example/nic:${KERNEL_FULL_VERSION}"}]
  selector: {}
---
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: plugin}
spec:
  devicePlugin: {container: {image: registry.example/plugin:1}}
  selector: {}
`
)

// layout is an image with the module nic for a kernel.
func layout(t *testing.T, kernel string) string {
	t.Helper()
	ko := filepath.Join(t.TempDir(), "nic.ko")
	if err := os.WriteFile(ko, synth.Module{Name: "nic", Vermagic: kernel + " SMP mod_unload "}.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	image, err := images.KmodImage(map[string]string{images.KmodPath(kernel, "nic.ko"): ko}, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := images.SaveLayout(folder, images.MultiArch(map[string]v1.Image{"amd64": image})); err != nil {
		t.Fatal(err)
	}
	return folder
}

func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return clitest.Run(t, &rest.Config{}, "team", bake.NewCommand, append([]string{"--arch", "amd64"}, args...)...)
}

// TestBake: a Module's file and the same wish in flags are one delivery, for the kernel of the
// node's image.
func TestBake(t *testing.T) {
	root, from := t.TempDir(), layout(t, kernel)
	if err := os.MkdirAll(filepath.Join(root, "lib/modules", kernel), 0o755); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(t.TempDir(), "modules.yaml")
	if err := os.WriteFile(modules, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, "-f", modules, "--root", root, "--from", from)
	for _, text := range []string{
		"Baked into " + filepath.Join(root, "var/lib/drover/store") + ": 1 image.", "Module team/nic, kernel " + kernel,
		"registry.example/nic:" + kernel, "by tag:", "Module plugin loads nothing: skipped.", " 1 file, ",
	} {
		if code != 0 || !strings.Contains(out, text) {
			t.Errorf("code %d, %q is missing:\n%s", code, text, out)
		}
	}
	again, code := run(t, "--image", "registry.example/nic:"+kernel, "--module", "nic", "--kernel", kernel, "--root", root, "--from", from,
		"-o", "json")
	var found []baking.Baked
	if err := json.Unmarshal([]byte(again[:strings.LastIndex(again, "]")+1]), &found); err != nil || code != 0 {
		t.Fatalf("%v, code %d:\n%s", err, code, again)
	}
	if len(found) != 1 || !strings.Contains(out, found[0].Delivery) || !strings.Contains(out, found[0].Tree) {
		t.Errorf("%+v is not what the file says:\n%s", found, out)
	}
}

// TestWrong: what is missing, or cannot be, is named, and nothing comes of it.
func TestWrong(t *testing.T) {
	root, from := t.TempDir(), layout(t, kernel)
	wants := []string{"--image", "x:1", "--module", "nic", "--root", root, "--from", from}
	for says, args := range map[string][]string{
		"give either --image or, with -f":     {"--root", root},
		"--root is missing":                   {"--image", "x:1", "--module", "nic"},
		"--module is missing":                 {"--image", "x:1", "--root", root},
		"has no kernel below lib/modules":     {"--image", "x:1", "--module", "nic", "--root", root},
		"open the node image's root":          {"--image", "x:1", "--module", "nic", "--root", filepath.Join(root, "none")},
		"only for linux/amd64":                append(wants[:8:8], "--kernel", kernel, "--arch", "arm64"),
		"it has kernels " + kernel:            append(wants[:8:8], "--kernel", "6.6.6"),
		"Kernel 6.6.6 is not in the node ima": append(wants[:8:8], "--kernel", "6.6.6"),
	} {
		if out, code := run(t, args...); code != 2 || !strings.Contains(out, says) {
			t.Errorf("%v: code %d, want %q:\n%s", args, code, says, out)
		}
	}
	if left, err := filepath.Glob(filepath.Join(root, "var/lib/drover/store/*/*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestGuide holds the guide's transcript to what the command prints.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/baking.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```text test="+t.Name()+"\n$ drover bake ")
	shown, _, found := strings.Cut(rest, "```")
	typed, want, _ := strings.Cut(shown, "\n")
	if !found {
		t.Fatal("the guide has no transcript")
	}
	root, modules := t.TempDir(), filepath.Join(t.TempDir(), "module.yaml")
	text := strings.ReplaceAll(file, "registry.example/nic:", "registry.example.com/nic:2.1-")
	if err := os.WriteFile(modules, []byte(strings.SplitN(text, "---", 2)[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.NewReplacer("/mnt/image", root, "module.yaml", modules).Replace(typed))
	out, code := run(t, append(args, "--from", layout(t, "6.1.0-44-amd64"))...)
	_, out, _ = strings.Cut(strings.ReplaceAll(out, root, "/mnt/image"), "Baked")
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
	if fits, err := regexp.MatchString("^"+pattern, "Baked"+out); !fits || err != nil || code != 0 {
		t.Errorf("code %d, %v: the guide shows\n%s\nand the command prints\nBaked%s", code, err, want, out)
	}
}
