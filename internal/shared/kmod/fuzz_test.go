// SPDX-License-Identifier: Apache-2.0

package kmod_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// FuzzLoad: the two ways to read a module, from a file and from its content, agree.
func FuzzLoad(f *testing.F) {
	for _, how := range []string{"", "gz", "xz", "zst"} {
		f.Add(compressed(f, how, synth.Module{Name: "a"}.Bytes()))
	}
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := fstest.MapFS{"a.ko": {Data: content}}.Open("a.ko")
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := kmod.Decompress(content)
		loaded, err := kmod.Load(file)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("from the file: %v, from the content: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		defer loaded.Release()
		if !bytes.Equal(loaded.Raw, want) || (loaded.Compression == kmod.Plain) != bytes.Equal(content, want) {
			t.Errorf("%d bytes from the file (%q), %d from the content", len(loaded.Raw), loaded.Compression, len(want))
		}
	})
}

// FuzzParseBuildID: an ID is a part of the note.
func FuzzParseBuildID(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00\x01\x02\x03\x04"), false)
	f.Add([]byte("\x00\x00\x00\x04\xff\xff\xff\xff\x00\x00\x00\x03GNU\x00"), true)
	f.Add(append([]byte("\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00x\x00\x00\x00y\x00\x00\x00"),
		"\x04\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00GNU\x00z"...), false)
	f.Fuzz(func(t *testing.T, note []byte, big bool) {
		var order binary.ByteOrder = binary.LittleEndian
		if big {
			order = binary.BigEndian
		}
		id, err := kmod.ParseBuildID(note, order)
		if err != nil && !errors.Is(err, kmod.ErrMalformed) {
			t.Errorf("error %v is of no known kind", err)
		}
		if err == nil && !bytes.Contains(note, id) {
			t.Errorf("ID %x", id)
		}
	})
}

// FuzzVermagic: a vermagic fits itself, and whether two fit does not depend on which comes first.
func FuzzVermagic(f *testing.F) {
	f.Add("6.1.0-17-amd64 SMP preempt mod_unload modversions ", "6.1.0-18-amd64 SMP preempt mod_unload modversions ", true)
	f.Add("", " ", false)
	f.Fuzz(func(t *testing.T, one, two string, crcs bool) {
		if !kmod.CompatibleVermagic(one, one, crcs) {
			t.Errorf("%q does not fit itself", one)
		}
		fits := kmod.CompatibleVermagic(one, two, crcs)
		if fits != kmod.CompatibleVermagic(two, one, crcs) {
			t.Errorf("%q and %q fit in one order", one, two)
		}
		if !crcs && fits && kmod.ParseVermagic(one).Release != kmod.ParseVermagic(two).Release {
			t.Errorf("%q and %q fit without CRCs", one, two)
		}
		v := kmod.ParseVermagic(one)
		if strings.Contains(v.Release, " ") || !strings.HasPrefix(one, v.Release) {
			t.Errorf("%q is of release %q", one, v.Release)
		}
	})
}

// FuzzIndexes: whatever depmod's files hold, a tree names modules by clean names and paths.
func FuzzIndexes(f *testing.F) {
	f.Add("kernel/a-b.ko.xz: kernel/c.ko\nextra/c.ko:\n", "kernel/d.ko\n", "alias crypto-x a_b\nalias usb:v* c\n", "a_b")
	f.Add("../x.ko:\n/abs/y.ko:\nno colon\n.ko:\n", "\xff.ko", "alias a\nalias b c d\n", "")
	f.Fuzz(func(t *testing.T, dep, builtin, alias, name string) {
		tree, err := kmod.NewIndexedTree(fstest.MapFS{
			"modules.dep": {Data: []byte(dep)}, "modules.builtin": {Data: []byte(builtin)}, "modules.alias": {Data: []byte(alias)},
		})
		if err != nil {
			t.Fatal(err)
		}
		names := tree.Names()
		if !slices.IsSorted(names) {
			t.Errorf("names %q", names)
		}
		for _, n := range names {
			file, ok := tree.Path(n)
			if !ok || !fs.ValidPath(file) || n == "" || strings.ContainsAny(n, "-/") || !strings.Contains(dep, file) {
				t.Errorf("module %q in %q", n, file)
			}
			if _, err := tree.Info(n); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that is not there: %v", err)
			}
		}
		_, err = kmod.Resolve(kmod.Want{Modules: []string{name}}, tree, nil)
		missing := (*kmod.NotFoundError)(nil)
		if !errors.As(err, &missing) && !errors.Is(err, fs.ErrNotExist) && err != nil {
			t.Errorf("resolve %q: %v", name, err)
		}
	})
}

// FuzzResolve: what a module's facts say of others is loaded in an order that works, or refused.
func FuzzResolve(f *testing.F) {
	f.Add("b,c", "pre: d post: e", "c", "pre: c", "", "")
	f.Add("a", "", "b", "", "c", "")
	f.Add("", "pre: b post: c", "", "pre: a", "", "post: a b c pre: x")
	f.Add("a-b", "pre: pre: post:", ",,", "post: a", " b , c ", "x pre: b")
	f.Fuzz(func(t *testing.T, depA, softA, depB, softB, depC, softC string) {
		image := fstest.MapFS{}
		for name, says := range map[string][2]string{"a": {depA, softA}, "b": {depB, softB}, "c": {depC, softC}} {
			// The license is where synth lets others into .modinfo.
			module := synth.Module{Name: name, License: "GPL\x00depends=" + says[0] + "\x00softdep=" + says[1]}
			image["kernel/"+name+".ko"] = &fstest.MapFile{Data: module.Bytes()}
		}
		resolve := func() ([]kmod.Step, error) {
			return kmod.Resolve(kmod.Want{Modules: []string{"a"}}, newTree(t, image), nil)
		}
		steps, err := resolve()
		if again, other := resolve(); cmp.Diff(steps, again) != "" || (err == nil) != (other == nil) {
			t.Errorf("another time: %v, %v", again, other)
		}
		if err != nil {
			return
		}
		loaded := map[string]bool{}
		for _, s := range steps {
			for _, need := range s.Info.Depends {
				if !loaded[need] {
					t.Errorf("%s is loaded before %s", s.Name, need)
				}
			}
			if loaded[s.Name] {
				t.Errorf("%s is loaded twice", s.Name)
			}
			loaded[s.Name] = true
		}
		if !loaded["a"] {
			t.Error("what is wanted is not loaded")
		}
	})
}
