// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const kernel = "6.1.0-51-amd64"

// image is a directory that stands for a mounted image.
type image struct {
	t   *testing.T
	dir string
}

func newImage(t *testing.T) image {
	t.Helper()
	return image{t: t, dir: t.TempDir()}
}

func (i image) file(name string, content []byte) {
	i.t.Helper()
	name = filepath.Join(i.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		i.t.Fatal(err)
	}
}

func (i image) module(name string, depends ...string) {
	i.file("opt/lib/modules/"+kernel+"/extra/"+name+".ko", synth.Module{Name: name, Depends: depends}.Bytes())
}

func (i image) link(target, name string) {
	i.t.Helper()
	name = filepath.Join(i.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		i.t.Fatal(err)
	}
}

// usual has a module with a dependency, one nobody asked for, indexes and firmware.
func usual(t *testing.T) image {
	i := newImage(t)
	i.module("top", "below", "on_the_host")
	i.module("below")
	i.module("unrelated")
	i.file("opt/lib/modules/"+kernel+"/modules.dep", []byte("extra/top.ko: extra/below.ko\n"))
	i.file("opt/lib/modules/"+kernel+"/README", []byte("not needed"))
	i.file("firmware/top/a.bin", []byte("a"))
	return i
}

func run(t *testing.T, i image, edit func(o *export.Options)) (out string, files []string, failure *manifest.Failure) {
	t.Helper()
	out = t.TempDir()
	o := export.Options{From: i.dir, To: out, Kernel: kernel, DirName: "/opt", Module: "top"}
	if edit != nil {
		edit(&o)
	}
	if err := export.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	files, failure = result(t, out)
	return out, files, failure
}

// result reads the output and checks that the tree is exactly what the manifest lists.
func result(t *testing.T, out string) ([]string, *manifest.Failure) {
	t.Helper()
	if data, err := os.ReadFile(filepath.Join(out, manifest.ErrorFile)); err == nil {
		failure, err := manifest.ParseFailure(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(out, manifest.TreeDir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a failed export left a tree: %v", err)
		}
		return nil, failure
	}
	data, err := os.ReadFile(filepath.Join(out, manifest.File))
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	var listed, there []string
	for _, e := range m.Files {
		listed = append(listed, e.Path)
	}
	tree := os.DirFS(filepath.Join(out, manifest.TreeDir))
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type().IsRegular():
			there = append(there, name)
		case !d.IsDir():
			t.Errorf("%s is %s", name, d.Type())
		}
		return nil
	})
	if err != nil && len(listed) > 0 {
		t.Fatal(err)
	}
	slices.Sort(there)
	if diff := cmp.Diff(listed, there); diff != "" {
		t.Errorf("manifest and tree differ (-manifest +tree):\n%s", diff)
	}
	return listed, nil
}

func in(dir string, names ...string) []string {
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	return names
}

func TestClosure(t *testing.T) {
	modules := "lib/modules/" + kernel
	base := in(modules, "extra/below.ko", "extra/top.ko", "modules.dep")
	cases := map[string]struct {
		image func(i image)
		edit  func(o *export.Options)
		want  []string
	}{
		"what the module needs, no more": {want: base},
		"firmware": {edit: func(o *export.Options) { o.FirmwarePath = "/firmware" },
			want: append([]string{"firmware/top/a.bin"}, base...)},
		"firmware, relative": {edit: func(o *export.Options) { o.FirmwarePath = "firmware/top" },
			want: append([]string{"firmware/a.bin"}, base...)},
		"firmware that climbs": {edit: func(o *export.Options) { o.FirmwarePath = "../../firmware" },
			want: append([]string{"firmware/top/a.bin"}, base...)},
		"load order": {
			edit: func(o *export.Options) { o.LoadOrder = []string{"top", "unrelated"} },
			want: in(modules, "extra/below.ko", "extra/top.ko", "extra/unrelated.ko", "modules.dep"),
		},
		"whole tree": {
			edit: func(o *export.Options) { o.WholeTree = true },
			want: in(modules, "README", "extra/below.ko", "extra/top.ko", "extra/unrelated.ko", "modules.dep"),
		},
		"a plus too many": {
			edit: func(o *export.Options) { o.Kernel = kernel + "+" },
			want: in(modules+"+", "extra/below.ko", "extra/top.ko", "modules.dep"),
		},
		"links to what is the node's own are left out": {
			image: func(i image) {
				i.link("/lib/modules/"+kernel, "opt/lib/modules/"+kernel+"/host")
				i.link("/usr/src/linux", "opt/lib/modules/"+kernel+"/build")
				i.link("build", "opt/lib/modules/"+kernel+"/source")
			},
			edit: func(o *export.Options) { o.WholeTree = true },
			want: in(modules, "README", "extra/below.ko", "extra/top.ko", "extra/unrelated.ko", "modules.dep"),
		},
		"links inside the image become files": {
			image: func(i image) { i.link("top/a.bin", "firmware/b.bin") },
			edit:  func(o *export.Options) { o.FirmwarePath = "/firmware" },
			want:  append([]string{"firmware/b.bin", "firmware/top/a.bin"}, base...),
		},
		"a linked lib": {
			image: func(i image) { i.link("opt/lib", "lib") },
			edit:  func(o *export.Options) { o.DirName = "/" },
			want:  base,
		},
		"pipes are skipped": {
			image: func(i image) {
				if err := syscall.Mkfifo(filepath.Join(i.dir, "firmware/pipe"), 0o644); err != nil {
					i.t.Fatal(err)
				}
			},
			edit: func(o *export.Options) { o.FirmwarePath = "/firmware" },
			want: append([]string{"firmware/top/a.bin"}, base...),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			i := usual(t)
			if c.image != nil {
				c.image(i)
			}
			_, files, failure := run(t, i, c.edit)
			if failure != nil {
				t.Fatal(failure)
			}
			if diff := cmp.Diff(c.want, files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailuresSayWhatIsThere(t *testing.T) {
	cases := map[string]struct {
		image  func(i image)
		edit   func(o *export.Options)
		reason string
		says   []string
	}{
		"no such kernel": {
			edit:   func(o *export.Options) { o.Kernel = "6.12.1" },
			reason: manifest.ReasonImageUnreadable, says: []string{"/opt/lib/modules/6.12.1", kernel},
		},
		"wrong dirName": {
			edit:   func(o *export.Options) { o.DirName = "/srv" },
			reason: manifest.ReasonImageUnreadable, says: []string{"/srv/lib/modules/", kernel, "set dirName to /opt"},
		},
		"nothing there": {
			image:  func(i image) { i.remove("opt") },
			reason: manifest.ReasonImageUnreadable, says: []string{"no kernel modules"},
		},
		"no such module": {
			edit:   func(o *export.Options) { o.Module = "other" },
			reason: manifest.ReasonMissingDependency, says: []string{"no module other", "below, top, unrelated"},
		},
		"no firmware": {
			edit:   func(o *export.Options) { o.FirmwarePath = "/lib/firmware" },
			reason: manifest.ReasonImageUnreadable, says: []string{"/lib/firmware", "firmwarePath"},
		},
		"not a module": {
			image:  func(i image) { i.file("opt/lib/modules/"+kernel+"/extra/below.ko", []byte("hello")) },
			reason: manifest.ReasonImageUnreadable, says: []string{"extra/below.ko"},
		},
		"too many bytes": {
			edit:   func(o *export.Options) { o.MaxBytes = 100 },
			reason: manifest.ReasonImageTooLarge, says: []string{"100 bytes"},
		},
		"too many files": {
			edit:   func(o *export.Options) { o.MaxFiles, o.WholeTree = 3, true },
			reason: manifest.ReasonImageTooLarge, says: []string{"3 files"},
		},
		"dirName is a link out": {
			image:  func(i image) { i.remove("opt"); i.link("/", "opt") },
			reason: manifest.ReasonImageUnreadable, says: []string{"opt"},
		},
		"a link out of the image": {
			image:  func(i image) { i.link("/etc/passwd", "firmware/top/passwd.bin") },
			edit:   func(o *export.Options) { o.FirmwarePath = "/firmware" },
			reason: manifest.ReasonImageUnreadable, says: []string{"/firmware/top/passwd.bin is a link to /etc/passwd"},
		},
		"folders that double at each step": {
			image: func(i image) {
				for n := range 30 {
					at := fmt.Sprintf("data/%d/", n)
					i.link(fmt.Sprintf("/data/%d", n+1), at+"a")
					i.link(fmt.Sprintf("/data/%d", n+1), at+"b")
				}
				i.file("data/30/file", nil)
				i.link("/data/0", "opt/lib/modules/"+kernel+"/updates")
			},
			edit:   func(o *export.Options) { o.WholeTree, o.MaxFiles = true, 1000 },
			reason: manifest.ReasonImageTooLarge, says: []string{"1000 files"},
		},
		"names that cannot be printed": {
			image:  func(i image) { i.file("firmware/a\nb", nil) },
			edit:   func(o *export.Options) { o.FirmwarePath = "/firmware" },
			reason: manifest.ReasonImageUnreadable, says: []string{"not printable"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			i := usual(t)
			if c.image != nil {
				c.image(i)
			}
			_, files, failure := run(t, i, c.edit)
			if failure == nil {
				t.Fatalf("exported %v", files)
			}
			if failure.Reason != c.reason {
				t.Errorf("reason %s, want %s", failure.Reason, c.reason)
			}
			for _, word := range c.says {
				if !strings.Contains(failure.Message, word) {
					t.Errorf("message %q lacks %q", failure.Message, word)
				}
			}
		})
	}
}

func (i image) remove(name string) {
	i.t.Helper()
	if err := os.RemoveAll(filepath.Join(i.dir, name)); err != nil {
		i.t.Fatal(err)
	}
}

// A container that is restarted finds what its predecessor left.
func TestRunAgain(t *testing.T) {
	i := usual(t)
	out := t.TempDir()
	o := export.Options{From: i.dir, To: out, Kernel: kernel, DirName: "/opt", Module: "top"}
	for name, content := range map[string]string{"tree/lib/half.ko": "half", manifest.ErrorFile: "{}", "." + manifest.File: "{"} {
		image{t, out}.file(name, []byte(content))
	}
	if err := export.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if files, failure := result(t, out); failure != nil || len(files) != 3 {
		t.Errorf("got %v, %v", files, failure)
	}
	i.remove("opt")
	if err := export.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if files, failure := result(t, out); failure != nil || len(files) != 3 {
		t.Errorf("a complete output was touched: %v, %v", files, failure)
	}
}

// The agent is root without the capability to pass over permission bits.
func TestOutputIsReadableForTheAgent(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	out, files, failure := run(t, usual(t), nil)
	if failure != nil || len(files) == 0 {
		t.Fatal(files, failure)
	}
	err := filepath.WalkDir(filepath.Join(out, manifest.TreeDir), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		want := fs.FileMode(0o644)
		if d.IsDir() {
			want = 0o755
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %s, want %s", name, info.Mode(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzKernelAndPaths: whatever a Module says, nothing outside the image is ever opened.
func FuzzKernelAndPaths(f *testing.F) {
	for _, s := range []string{"", "..", "/", "../../etc", "a/../..", "\x00", "opt\n"} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, kernel, dirName, firmware string) {
		root := t.TempDir()
		secret := filepath.Join(root, "secret", "lib", "modules", "k")
		for _, dir := range []string{secret, filepath.Join(root, "image"), filepath.Join(root, "out")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(secret, "secret.ko"), []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		o := export.Options{From: filepath.Join(root, "image"), To: filepath.Join(root, "out"), Kernel: kernel, DirName: dirName,
			FirmwarePath: firmware, WholeTree: true}
		if err := export.Run(t.Context(), o); err != nil {
			return
		}
		data, err := os.ReadFile(filepath.Join(root, "out", manifest.File))
		if err != nil {
			return
		}
		var m manifest.Manifest
		if err := json.Unmarshal(data, &m); err != nil || len(m.Files) > 0 {
			t.Errorf("took %v (%v)", m.Files, err)
		}
	})
}
