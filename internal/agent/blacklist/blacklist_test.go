// SPDX-License-Identifier: Apache-2.0

package blacklist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents of a directory, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[e.Name()] = string(data)
	}
	return found
}

func TestFiles(t *testing.T) {
	const theirs = "# an administrator's\nblacklist pcspkr\n"
	cases := map[string]struct {
		given map[string]string
		do    func(f *Files) error
		fails string
		then  map[string]string
	}{
		"a file per Module": {
			do: func(f *Files) error { return f.Put("team/nic", []string{"stock", "other", "stock"}) },
			then: map[string]string{
				"drover-team.nic.conf": header + "team/nic\nblacklist other\nblacklist stock\n",
			},
		},
		"changed": {
			given: map[string]string{"drover-team.nic.conf": header + "team/nic\nblacklist old\n"},
			do:    func(f *Files) error { return f.Put("team/nic", []string{"stock"}) },
			then:  map[string]string{"drover-team.nic.conf": header + "team/nic\nblacklist stock\n"},
		},
		"of that name and not ours": {
			given: map[string]string{"drover-team.nic.conf": theirs},
			do:    func(f *Files) error { return f.Put("team/nic", []string{"stock"}) },
			fails: "not Drover's",
			then:  map[string]string{"drover-team.nic.conf": theirs},
		},
		"only ours leave": {
			given: map[string]string{
				"drover-team.nic.conf": header + "team/nic\n", "drover-team.old.conf": header + "team/old\n", "drover-team.mine.conf": theirs,
				"drover-team.x.conf.new": header + "team/x\n", "local.conf": header + "copied\n",
			},
			do: func(f *Files) error { return f.Retain([]string{"team/nic", "team/absent"}) },
			then: map[string]string{
				"drover-team.nic.conf": header + "team/nic\n", "drover-team.mine.conf": theirs, "local.conf": header + "copied\n",
			},
		},
		"a module's name that is none": {do: func(f *Files) error { return f.Put("team/nic", []string{"a\ninstall b /bin/sh"}) },
			fails: "not a module's name", then: map[string]string{}},
		"a path for an owner": {do: func(f *Files) error { return f.Put("../team", []string{"a"}) }, fails: "not a Module's",
			then: map[string]string{}},
		"a path for a name": {do: func(f *Files) error { return f.Put("team/../x", []string{"a"}) }, fails: "not a Module's",
			then: map[string]string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tc.given {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := tc.do(New(dir))
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tc.then, contents(t, dir)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamesDoNotCollide(t *testing.T) {
	a, errA := fileOf("a-b/c")
	b, errB := fileOf("a/b-c")
	if errA != nil || errB != nil || a == b {
		t.Errorf("%s and %s, errors %v, %v", a, b, errA, errB)
	}
}

// TestLinksAreLeftAlone: what a link leads to is not written, nor is the link removed.
func TestLinksAreLeftAlone(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(target, []byte(header+"team/nic\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "drover-team.nic.conf")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	f := New(dir)
	if err := f.Put("team/nic", []string{"stock"}); err == nil {
		t.Error("a link was taken for a file of ours")
	}
	if err := f.Retain(nil); err != nil {
		t.Error(err)
	}
	if got, err := os.Readlink(link); err != nil || got != target {
		t.Errorf("link to %s, error %v", got, err)
	}
}

// TestNothingIsWrittenTwice, not even read again by whoever watches the directory.
func TestNothingIsWrittenTwice(t *testing.T) {
	dir := t.TempDir()
	f := New(dir)
	changes := 0
	f.step = func() { changes++ }
	for range 3 {
		if err := f.Put("team/nic", []string{"stock"}); err != nil {
			t.Fatal(err)
		}
		if err := f.Retain([]string{"team/nic"}); err != nil {
			t.Fatal(err)
		}
	}
	if changes != 3 { // the steps of one replacement
		t.Errorf("%d changes", changes)
	}
	if err := f.Retain(nil); err != nil || len(contents(t, dir)) > 0 {
		t.Errorf("error %v, left %v", err, contents(t, dir))
	}
	if err := New(filepath.Join(dir, "missing")).Retain(nil); err != nil {
		t.Errorf("without a directory there is nothing to remove: %v", err)
	}
}

// TestKilledAtAnyStep: the file is the old or the new one at any time, and the next call finishes
// the work.
func TestKilledAtAnyStep(t *testing.T) {
	const old, want = header + "team/nic\nblacklist old\n", header + "team/nic\nblacklist stock\n"
	for left := range 5 {
		dir := t.TempDir()
		killed := New(dir)
		if err := killed.Put("team/nic", []string{"old"}); err != nil {
			t.Fatal(err)
		}
		rest := left
		killed.step = func() {
			if rest--; rest < 0 {
				panic("killed")
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = killed.Put("team/nic", []string{"stock"})
			_ = killed.Retain(nil)
		}()
		if now, ok := contents(t, dir)["drover-team.nic.conf"]; ok && now != old && now != want {
			t.Errorf("after %d steps: %q", left, now)
		}
		f := New(dir)
		if err := f.Put("team/nic", []string{"stock"}); err != nil {
			t.Fatal(err)
		}
		if err := f.Retain([]string{"team/nic"}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"drover-team.nic.conf": want}, contents(t, dir)); diff != "" {
			t.Errorf("after %d steps (-want +got):\n%s", left, diff)
		}
	}
}
