// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// rig is a directory whose power is cut.
type rig struct {
	*testing.T
	dir  string
	disk *Disk
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// do is what an agent does: "write a 1", "sync a", "move a b", "remove a", "make d", "replace a 1".
func (r *rig) do(what string) {
	r.Helper()
	words := append(strings.Fields(what), "", "")
	name, other := r.path(words[1]), words[2]
	switch words[0] {
	case "write":
		r.must(os.WriteFile(name, []byte(other), 0o600))
	case "sync":
		r.must(statefile.Sync(r.disk.Sync).Dir(name)) // opens files, too
	case "move":
		r.must(os.Rename(name, r.path(other)))
	case "remove":
		r.must(os.RemoveAll(name))
	case "make":
		r.must(os.MkdirAll(name, 0o700))
	case "replace":
		r.must(statefile.Replace(filepath.Dir(name), filepath.Base(name), []byte(other), 0o600, r.disk.Sync))
	default:
		r.Fatalf("%q is nothing that an agent does", what)
	}
}

// left are the files, and the directories that are empty.
func (r *rig) left() string {
	var all []string
	r.must(filepath.WalkDir(r.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below := strings.TrimPrefix(name, r.dir+"/")
		if e.IsDir() {
			if in, err := os.ReadDir(name); len(in) > 0 || err != nil || name == r.dir {
				return err
			}
			all = append(all, below+"/")
			return nil
		}
		content, err := os.ReadFile(name)
		all = append(all, below+"="+string(content))
		return err
	}))
	return strings.Join(all, " ")
}

// afterCut has the power go after some acts, and returns what there is then.
func afterCut(t *testing.T, seed uint64, before, after []string) string {
	t.Helper()
	// Inodes are not used again at once where files are in memory.
	dir, err := os.MkdirTemp("/dev/shm", "disk-")
	if err != nil {
		t.Skipf("no place in memory: %v", err)
	}
	defer os.RemoveAll(dir)
	r := &rig{T: t, dir: dir}
	for _, what := range before {
		r.do(what)
	}
	r.disk, err = New(dir)
	r.must(err)
	for _, what := range after {
		r.do(what)
	}
	was := r.left()
	image, err := r.disk.Cut(rand.New(rand.NewPCG(seed, 1)))
	r.must(err)
	if got := r.left(); got != was {
		t.Errorf("a cut that is only thought of made %q of %q", got, was)
	}
	r.must(r.disk.Put(image))
	left := r.left()
	image, err = r.disk.Cut(rand.New(rand.NewPCG(seed, 2)))
	r.must(err)
	r.must(r.disk.Put(image))
	if again := r.left(); again != left {
		t.Errorf("a second cut made %q of %q", again, left)
	}
	return left
}

func TestCut(t *testing.T) {
	cases := map[string]struct {
		before, after []string
		may           []string // what there may be, and nothing else
	}{
		"nothing was done":          {[]string{"write a 1"}, nil, []string{"a=1"}},
		"a new file":                {nil, []string{"write a 1"}, []string{"", "a=", "a=1"}},
		"its content was synced":    {nil, []string{"write a 1", "sync a"}, []string{"", "a=1"}},
		"its name was synced":       {nil, []string{"write a 1", "sync ."}, []string{"a=", "a=1"}},
		"both were":                 {nil, []string{"write a 1", "sync a", "sync ."}, []string{"a=1"}},
		"written in place":          {[]string{"write a 1"}, []string{"write a 2"}, []string{"a=", "a=1", "a=2"}},
		"taken away":                {[]string{"write a 1"}, []string{"remove a"}, []string{"", "a=1"}},
		"taken away for good":       {[]string{"write a 1"}, []string{"remove a", "sync ."}, []string{""}},
		"moved":                     {[]string{"write a 1"}, []string{"move a b"}, []string{"a=1", "b=1"}},
		"moved for good":            {[]string{"write a 1"}, []string{"move a b", "sync ."}, []string{"b=1"}},
		"replaced as an agent does": {[]string{"write a 1"}, []string{"replace a 2"}, []string{"a=2"}},
		"replaced without a sync":   {[]string{"write a 1"}, []string{"write b 2", "move b a"}, []string{"a=", "a=1", "a=2"}},
		"replaced, only the content synced": {[]string{"write a 1"}, []string{"write b 2", "sync b", "move b a"},
			[]string{"a=1", "a=2"}},
		"replaced, only the name synced": {[]string{"write a 1"}, []string{"write b 2", "move b a", "sync ."}, []string{"a=", "a=2"}},
		"set aside, and made anew": {[]string{"write a 1"}, []string{"move a b", "write a 2", "sync a"},
			[]string{"a=1", "a=2 b=1", "b=1"}},
		"a directory":                        {nil, []string{"make d"}, []string{"", "d/"}},
		"a sync keeps the directories above": {nil, []string{"make d/e", "write d/e/a 1", "sync d/e/a"}, []string{"d/e/", "d/e/a=1"}},
		"a tree that is moved": {[]string{"make in", "make out"},
			[]string{"make in/t", "write in/t/a 1", "sync in/t/a", "sync in/t", "move in/t out/t"}, []string{"in/ out/t/a=1", "in/t/a=1 out/"}},
		"a tree that is moved for good": {[]string{"make in", "make out"},
			[]string{"make in/t", "write in/t/a 1", "sync in/t/a", "sync in/t", "move in/t out/t", "sync out"}, []string{"in/ out/t/a=1"}},
		"a tree that nothing was synced of": {nil, []string{"make t", "write t/a 1"}, []string{"", "t/", "t/a=", "t/a=1"}},
		"a file that is moved to a new directory": {[]string{"write a 1"}, []string{"make d", "move a d/a"},
			[]string{"a=1", "a=1 d/", "d/a=1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := map[string]bool{}
			for seed := range uint64(40) {
				left := afterCut(t, seed, tc.before, tc.after)
				found[left] = true
				if again := afterCut(t, seed, tc.before, tc.after); again != left {
					t.Errorf("seed %d leaves %q and %q", seed, left, again)
				}
			}
			var got []string
			for left := range found {
				got = append(got, left)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.may, got); diff != "" {
				t.Errorf("(-may be there +is there):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	if _, err := New(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	d, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := statefile.Sync(d.Sync).Dir(t.TempDir()); err == nil {
		t.Error("a directory of another disk is synced")
	}
}
