// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDependsFieldTakesFirstAlternatives(t *testing.T) {
	record := "Package: linux-headers-6.12.1+deb12-amd64\n" +
		"Depends: linux-base (>= 4.12~), linux-image-a (= 1) | linux-image-b, linux-kbuild-6.12.1+deb12, gcc-12\n" +
		"Description: no Depends: here\n"
	want := []string{"linux-base", "linux-image-a", "linux-kbuild-6.12.1+deb12", "gcc-12"}
	if diff := cmp.Diff(want, dependsField(record)); diff != "" {
		t.Error(diff)
	}
}

func TestWantedModulesAreClosed(t *testing.T) {
	dependencies := map[string][]string{
		"kernel/drivers/media/mc/mc.ko":                 nil,
		"kernel/drivers/media/v4l2-core/videodev.ko":    {"kernel/drivers/media/mc/mc.ko"},
		"kernel/drivers/media/usb/au0828/au0828.ko":     {"kernel/sound/core/snd-pcm.ko", "kernel/sound/core/snd.ko"},
		"kernel/sound/core/snd-pcm.ko":                  {"kernel/sound/core/snd.ko"},
		"kernel/sound/core/snd.ko":                      nil,
		"kernel/sound/pci/hda/snd-hda-intel.ko":         {"kernel/sound/core/snd-pcm.ko", "kernel/sound/core/snd.ko"},
		"kernel/drivers/net/ethernet/intel/e1000/e1.ko": nil,
	}
	got := wantedModules(dependencies, unneeded)
	slices.Sort(got)
	want := []string{
		"kernel/drivers/media/mc/mc.ko",
		"kernel/drivers/media/usb/au0828/au0828.ko",
		"kernel/drivers/media/v4l2-core/videodev.ko",
		"kernel/sound/core/snd-pcm.ko",
		"kernel/sound/core/snd.ko",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHeadersFindTheirCommonPartBesideThem(t *testing.T) {
	const release = "6.12.1+deb12-amd64"
	root := t.TempDir()
	headers := filepath.Join(root, "usr", "src", "linux-headers-"+release)
	common := filepath.Join(root, "usr", "src", "linux-headers-6.12.1+deb12-common")
	for _, dir := range []string{headers, common} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{
		filepath.Join(headers, "Makefile"): "include /usr/src/linux-headers-6.12.1+deb12-common/Makefile\n",
		filepath.Join(common, "Makefile"):  "modules:\n\t@echo common reached\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := relocateHeaders(root, release); err != nil {
		t.Fatal(err)
	}
	if err := relocateHeaders(root, release); err == nil {
		t.Error("an unknown Makefile was accepted")
	}
	output, err := exec.Command("make", "-s", "-C", headers, "modules").CombinedOutput()
	if err != nil || strings.TrimSpace(string(output)) != "common reached" {
		t.Errorf("make: %v: %s", err, output)
	}
}

func TestDKMSSaysHowToCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   DKMS
	}{
		"all by default": {
			config: "PACKAGE_NAME=one\nPACKAGE_VERSION=1\n",
			want:   DKMS{Modules: []string{"one"}, Script: "make KERNELRELEASE=6.1.0 -C /headers M=/build"},
		},
		"several modules in folders": {
			config: `PACKAGE_NAME=two
PACKAGE_VERSION=1
PRE_BUILD="configure --with=$kernel_source_dir"
MAKE[0]="make -C ${kernel_source_dir} M=${dkms_tree}/two/1/build/src modules"
BUILT_MODULE_NAME[0]=lib
BUILT_MODULE_LOCATION[0]=src
BUILT_MODULE_NAME[1]=user-of-lib
`,
			want: DKMS{
				Modules: []string{"lib", "user-of-lib"},
				Script:  "sh ./configure --with=/headers && make KERNELRELEASE=6.1.0 -C /headers M=/build/src modules",
			},
		},
		"a preparation of several lines, and a make that is not the first word": {
			config: `PACKAGE_NAME=three
PACKAGE_VERSION=1
PRE_BUILD="configure
  --prefix=/usr
  --with-linux=$kernel_source_dir
"
MAKE[0]="'make' -C src/make all && ./make-more"
`,
			want: DKMS{
				Modules: []string{"three"},
				Script:  "sh ./configure --prefix=/usr --with-linux=/headers && 'make' -C src/make all && ./make-more",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "dkms.conf"), []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := describe(t.Context(), dir, "6.1.0", "/headers", "/build")
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Dir = dir
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCPIOMakesFoldersBeforeTheirFiles(t *testing.T) {
	var out bytes.Buffer
	files := map[string]File{"init": {Content: []byte("#!"), Mode: 0o755}, "a/b/c": {Content: []byte("xyz")}, "proc/": {}}
	if err := WriteCPIO(&out, files); err != nil {
		t.Fatal(err)
	}
	want := []string{"40755 a 0", "40755 a/b 0", "100644 a/b/c 3", "100755 init 2", "40755 proc 0", "0 TRAILER!!! 0"}
	if diff := cmp.Diff(want, listCPIO(t, out.Bytes())); diff != "" {
		t.Error(diff)
	}
}

func TestEntryIsMadeOnceAndOnlyWhole(t *testing.T) {
	cache := &Cache{dir: t.TempDir()}
	failure := errors.New("no network")
	_, err := cache.Entry(context.Background(), "thing", []string{"1"}, func(_ context.Context, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), failure)
	})
	if !errors.Is(err, failure) {
		t.Fatalf("error %v instead of the build's", err)
	}
	var builds atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			dir, err := cache.Entry(context.Background(), "thing", []string{"1"}, func(_ context.Context, dir string) error {
				builds.Add(1)
				return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != "whole" {
				t.Errorf("the entry holds %v, %v", entries, err)
			}
		})
	}
	group.Wait()
	if builds.Load() != 1 {
		t.Errorf("built %d times", builds.Load())
	}
}

func TestPruneKeepsWhatIsUsed(t *testing.T) {
	cache := &Cache{dir: t.TempDir()}
	entry := func(name, input string) string {
		dir, err := cache.Entry(t.Context(), name, []string{input}, func(context.Context, string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	age := func(dir string) {
		old := time.Now().Add(-2 * keepUnused)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	unused, used, other := entry("root", "1"), entry("root", "2"), entry("root-other", "1")
	for _, dir := range []string{unused, used, other} {
		age(dir)
	}
	entry("root", "2")
	fresh := entry("root", "3")
	if exists(unused) {
		t.Error("an unused entry was kept")
	}
	for _, dir := range []string{used, other, fresh} {
		if !exists(dir) {
			t.Errorf("%s was removed", dir)
		}
	}
}
