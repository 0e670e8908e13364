// SPDX-License-Identifier: Apache-2.0

package kmod_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

func newTree(t testing.TB, fsys fs.FS) *kmod.Tree {
	t.Helper()
	tree, err := kmod.NewTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// empty is a file whose content must not matter.
var empty = &fstest.MapFile{}

func TestTreeIndex(t *testing.T) {
	for name, test := range map[string]struct {
		given fstest.MapFS
		want  map[string]string
	}{
		"nothing": {given: fstest.MapFS{}, want: map[string]string{}},
		"names and compressions": {
			given: fstest.MapFS{"a-b.ko": empty, "kernel/x/c.ko.xz": empty, "d.ko.gz": empty, "e.ko.zst": empty, "f.ko.bz2": empty, ".ko": empty,
				"g.kon": empty, "h.so": empty},
			want: map[string]string{"a_b": "a-b.ko", "c": "kernel/x/c.ko.xz", "d": "d.ko.gz", "e": "e.ko.zst"},
		},
		"updates before extra before others before weak-updates": {
			given: fstest.MapFS{
				"kernel/a.ko": empty, "extra/a.ko": empty, "updates/dkms/a.ko": empty, "weak-updates/a.ko": empty,
				"kernel/b.ko": empty, "extra/b.ko": empty,
				"weak-updates/c.ko": empty, "zzz/c.ko": empty,
				"kernel/updates/d.ko": empty, "kernel/drivers/d.ko": empty,
			},
			want: map[string]string{"a": "updates/dkms/a.ko", "b": "extra/b.ko", "c": "zzz/c.ko", "d": "kernel/drivers/d.ko"},
		},
		"headers and sources are no modules": {
			given: fstest.MapFS{"build/scripts/a.ko": empty, "source/a.ko": empty, "kernel/build/b.ko": empty},
			want:  map[string]string{"b": "kernel/build/b.ko"},
		},
		"links are not followed": {
			given: fstest.MapFS{"host": {Mode: fs.ModeSymlink, Data: []byte("/lib/modules/6.1.0")},
				"weak-updates/a.ko": {Mode: fs.ModeSymlink, Data: []byte("../a.ko")}},
			want: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t, test.given)
			got := map[string]string{}
			for _, module := range tree.Names() {
				got[module], _ = tree.Path(module)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostTree follows a node's links to modules, as depmod does, on a real file system.
func TestHostTree(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		links map[string]string
		want  map[string]string
	}{
		"weak-updates lead to another kernel's module": {
			files: []string{"5.14.0-1/extra/pkg/a.ko.xz"},
			links: map[string]string{"5.14.0-2/weak-updates/pkg/a.ko.xz": "../../../5.14.0-1/extra/pkg/a.ko.xz"},
			want:  map[string]string{"a": "weak-updates/pkg/a.ko.xz"},
		},
		"a link in extra comes before the kernel's own": {
			files: []string{"5.14.0-2/kernel/a.ko", "opt/a.ko"},
			links: map[string]string{"5.14.0-2/extra/a.ko": "../../opt/a.ko"},
			want:  map[string]string{"a": "extra/a.ko"},
		},
		"links that lead nowhere, to a directory or to themselves": {
			files: []string{"5.14.0-2/kernel/b.ko"},
			links: map[string]string{
				"5.14.0-2/weak-updates/b.ko": "../../gone.ko", "5.14.0-2/extra/b.ko": "../kernel", "5.14.0-2/updates/b.ko": "b.ko",
				"5.14.0-2/build": "../5.14.0-2",
			},
			want: map[string]string{"b": "kernel/b.ko"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range test.files {
				put(t, filepath.Join(dir, file), func(name string) error { return os.WriteFile(name, nil, 0o600) })
			}
			for link, target := range test.links {
				put(t, filepath.Join(dir, link), func(name string) error { return os.Symlink(target, name) })
			}
			for how, index := range map[string]func(fs.FS) (*kmod.Tree, error){"walked": kmod.NewHostTree, "without an index": kmod.NewIndexedTree} {
				tree, err := index(os.DirFS(filepath.Join(dir, "5.14.0-2")))
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for _, module := range tree.Names() {
					got[module], _ = tree.Path(module)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func put(t *testing.T, name string, do func(string) error) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), do(name)); err != nil {
		t.Fatal(err)
	}
}

// TestIndexedTree takes depmod's word for where modules are, and looks for itself where there is
// none.
func TestIndexedTree(t *testing.T) {
	index := func(lines string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(lines)} }
	for name, test := range map[string]struct {
		given fstest.MapFS
		want  map[string]string
	}{
		"no index":       {given: fstest.MapFS{"kernel/a.ko": empty}, want: map[string]string{"a": "kernel/a.ko"}},
		"an empty index": {given: fstest.MapFS{"modules.dep": index(""), "kernel/a.ko": empty}, want: map[string]string{"a": "kernel/a.ko"}},
		"what depmod found": {
			given: fstest.MapFS{"modules.dep": index("kernel/a-b.ko.xz: kernel/c.ko\nkernel/c.ko:\n"), "kernel/late.ko": empty},
			want:  map[string]string{"a_b": "kernel/a-b.ko.xz", "c": "kernel/c.ko"},
		},
		"paths that lead elsewhere, and no paths": {
			given: fstest.MapFS{"modules.dep": index("/lib/modules/6.1/a.ko:\n../b.ko:\nnonsense\nkernel/c.ko:\n")},
			want:  map[string]string{"c": "kernel/c.ko"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.given["modules.builtin"] = index("kernel/lib/inside.ko\n")
			tree, err := kmod.NewIndexedTree(test.given)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, module := range tree.Names() {
				got[module], _ = tree.Path(module)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !tree.Builtin("inside") {
				t.Error("what is built in is not known")
			}
		})
	}
	if _, err := kmod.NewIndexedTree(os.DirFS(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestTreeBuiltinAndIndexes(t *testing.T) {
	tree := newTree(t, fstest.MapFS{
		"modules.builtin":         {Data: []byte("kernel/fs/ext4/ext4.ko\nkernel/crypto/sha256-generic.ko\n\nnonsense\n")},
		"modules.builtin.modinfo": empty, "modules.dep": empty, "modules.dep.bin": empty, "modules.order": empty,
		"modules.other": empty, "modulesXdep": empty, "kernel/modules.alias": empty,
		"modules.softdep": {Mode: fs.ModeSymlink, Data: []byte("/etc/passwd")},
	})
	for name, want := range map[string]bool{"ext4": true, "sha256_generic": true, "sha256-generic": true, "nonsense": false, "xfs": false} {
		if got := tree.Builtin(name); got != want {
			t.Errorf("Builtin(%s) = %v", name, got)
		}
	}
	want := []string{"modules.builtin", "modules.builtin.modinfo", "modules.dep", "modules.dep.bin", "modules.order"}
	if diff := cmp.Diff(want, tree.Indexes()); diff != "" {
		t.Errorf("indexes (-want +got):\n%s", diff)
	}
}

func TestTreeInfo(t *testing.T) {
	files := fstest.MapFS{"my-module.ko": {Data: full().Bytes()}, "bad.ko": {Data: []byte("x")}}
	tree := newTree(t, files)
	info, err := tree.Info("my-module")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullInfo(), info); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	delete(files, "my-module.ko")
	if again, err := tree.Info("my_module"); err != nil || again != info {
		t.Errorf("read a second time: %v, error %v", again, err)
	}
	for range 2 {
		if _, err := tree.Info("bad"); !errors.Is(err, kmod.ErrMalformed) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := tree.Info("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestNewTreeErrors(t *testing.T) {
	if _, err := kmod.NewTree(os.DirFS(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestNilTree(t *testing.T) {
	var tree *kmod.Tree
	if path, ok := tree.Path("a"); ok || tree.Builtin("a") || tree.Names() != nil || tree.Indexes() != nil {
		t.Errorf("not empty: %q", path)
	}
	if _, err := tree.Info("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// largeTree writes as many modules as a distribution's kernel has.
func largeTree(t testing.TB, modules int) string {
	t.Helper()
	dir := t.TempDir()
	content := synth.Module{Name: "a"}.Bytes()
	for i := range modules {
		sub := filepath.Join(dir, "kernel", "drivers", fmt.Sprint(i%97), fmt.Sprint(i%7))
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("m%d.ko", i)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(dir, "host")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// opens counts what a tree opens.
type opens struct {
	fs.FS
	modules int
}

func (o *opens) Open(name string) (fs.File, error) {
	if _, ok := kmod.ModuleName(name); ok {
		o.modules++
	}
	return o.FS.Open(name)
}

// Indexing a host's tree must not cost reading its hundreds of megabytes.
func TestTreeOpensNoModule(t *testing.T) {
	files := fstest.MapFS{"modules.builtin": {Data: []byte("kernel/x.ko\n")}, "kernel/m.ko": {Data: full().Bytes()}}
	for i := range 4000 {
		files[fmt.Sprintf("kernel/drivers/%d/m%d.ko.xz", i%97, i)] = empty
	}
	counted := &opens{FS: files}
	tree := newTree(t, counted)
	if got := len(tree.Names()); got != 4001 || counted.modules != 0 {
		t.Errorf("%d modules, %d opened", got, counted.modules)
	}
	for range 2 {
		if _, err := tree.Info("m"); err != nil || counted.modules != 1 {
			t.Errorf("%d opened, error %v", counted.modules, err)
		}
	}
}

func BenchmarkNewTree(b *testing.B) {
	root, err := os.OpenRoot(largeTree(b, 4000))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	for b.Loop() {
		newTree(b, root.FS())
	}
}
