// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/firmware"
)

func TestAddAndRemove(t *testing.T) {
	add := func(owner string, all files) func(*node) error {
		return func(n *node) error { return n.add(owner, all) }
	}
	remove := func(owner string) func(*node) error { return func(n *node) error { return n.Remove(owner) } }
	retain := func(keep ...string) func(*node) error { return func(n *node) error { return n.Retain(keep) } }
	onHost := func(change func(n *node) error) func(*node) error { return change }
	for name, c := range map[string]struct {
		host files
		do   []func(*node) error
		want files
	}{
		"one": {do: []func(*node) error{add("a", files{"v/x.bin": "x", "y": ""})}, want: files{"v/x.bin": "x", "y": ""}},
		"twice is once": {
			do:   []func(*node) error{add("a", files{"x": "x"}), add("a", files{"x": "x"})},
			want: files{"x": "x"},
		},
		"removed, with its directories": {
			do: []func(*node) error{add("a", files{"v/w/x": "x"}), remove("a"), remove("a")}, want: files{},
		},
		"a directory that was there stays": {
			host: files{"v/own": "own"},
			do:   []func(*node) error{add("a", files{"v/w/x": "x"}), remove("a")}, want: files{"v/own": "own"},
		},
		"an empty directory that was there stays": {
			do: []func(*node) error{
				onHost(func(n *node) error { return os.MkdirAll(n.host(ours, "v"), 0o755) }), add("a", files{"v/w/x": "x"}), remove("a"),
			},
			want: files{"v/": ""},
		},
		"shared by two, one goes": {
			do:   []func(*node) error{add("a", files{"x": "x", "a": "a"}), add("b", files{"x": "x"}), remove("a")},
			want: files{"x": "x"},
		},
		"shared by two, both go": {
			do:   []func(*node) error{add("a", files{"x": "x"}), add("b", files{"x": "x"}), remove("a"), remove("b")},
			want: files{},
		},
		"a new version replaces": {
			do:   []func(*node) error{add("a", files{"x": "1", "old": "o", "same": "s"}), add("a", files{"x": "2", "new": "n", "same": "s"})},
			want: files{"x": "2", "new": "n", "same": "s"},
		},
		"replaced and removed": {
			do: []func(*node) error{add("a", files{"x": "1"}), add("a", files{"x": "2"}), remove("a")}, want: files{},
		},
		"without firmware any more": {
			do: []func(*node) error{add("a", files{"x": "1"}), add("a", files{})}, want: files{},
		},
		"the same content under two names": {
			do: []func(*node) error{add("a", files{"x": "1", "v/y": "1"}), add("a", files{"v/y": "1"})}, want: files{"v/y": "1"},
		},
		"the host's own file with the same content stays": {
			host: files{"x": "x"}, do: []func(*node) error{add("a", files{"x": "x"}), remove("a")}, want: files{"x": "x"},
		},
		"a package installs the same file over ours": {
			do: []func(*node) error{
				add("a", files{"x": "x"}),
				onHost(func(n *node) error {
					n.put(ours, files{"x.new": "x"})
					return os.Rename(n.host(ours, "x.new"), n.host(ours, "x"))
				}),
				add("a", files{"x": "x"}), remove("a"),
			},
			want: files{"x": "x"},
		},
		"somebody changed ours: it stays": {
			do: []func(*node) error{
				add("a", files{"v/x": "x"}),
				onHost(func(n *node) error { return os.WriteFile(n.host(ours, "v/x"), []byte("mine"), 0o600) }), remove("a"),
			},
			want: files{"v/x": "mine"},
		},
		"somebody put a file beside ours: its directory stays": {
			do: []func(*node) error{
				add("a", files{"v/w/x": "x"}),
				onHost(func(n *node) error { return os.WriteFile(n.host(ours, "v/own"), []byte("own"), 0o600) }), remove("a"),
			},
			want: files{"v/own": "own"},
		},
		"somebody removed ours: it comes back": {
			do: []func(*node) error{
				add("a", files{"v/x": "x"}), onHost(func(n *node) error { return os.RemoveAll(n.host(ours, "v")) }), add("a", files{"v/x": "x"}),
			},
			want: files{"v/x": "x"},
		},
		"somebody removed everything: it comes back": {
			do: []func(*node) error{
				add("a", files{"v/x": "x"}), onHost(func(n *node) error { return os.RemoveAll(n.host(ours)) }), add("a", files{"v/x": "x"}),
			},
			want: files{"v/x": "x"},
		},
		"somebody removed a directory of ours, and another owner comes": {
			do: []func(*node) error{
				add("a", files{"v/x": "x"}), onHost(func(n *node) error { return os.RemoveAll(n.host(ours, "v")) }), add("b", files{"y": "y"}),
			},
			want: files{"v/x": "x", "y": "y"},
		},
		"only those kept stay": {
			do:   []func(*node) error{add("a", files{"a": "a"}), add("b", files{"b": "b"}), add("c", files{"b": "b"}), retain("b", "z")},
			want: files{"b": "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).put(ours, c.host)
			for i, do := range c.do {
				if err := do(n.start()); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			if diff := cmp.Diff(c.want, n.seen(ours)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			n.must(n.start().Retain(nil))
			if _, traces := n.see(ours)[".drover"]; traces || n.kernel() != "" {
				t.Errorf("after the last: .drover there: %v, search path %q", traces, n.kernel())
			}
		})
	}
}

// TestPrepare writes an owner's next firmware where the kernel does not look.
func TestPrepare(t *testing.T) {
	before, next := files{"v/x": "1", "old": "o"}, files{"v/x": "two", "n/new": "n"}
	for name, c := range map[string]struct {
		do       func(n *node) error
		want     files
		prepared bool // the new content is on the disk
	}{
		"the kernel sees what it saw": {want: before, prepared: true},
		"with another owner's changes, too": {
			do:   func(n *node) error { return errors.Join(n.add("b", files{"b": "b"}), n.Remove("b")) },
			want: before, prepared: true,
		},
		"the old leaves, the new is kept": {do: func(n *node) error { return n.Release("a") }, want: files{}, prepared: true},
		"added":                           {do: func(n *node) error { return n.add("a", next) }, want: next, prepared: true},
		"released and added": {
			do: func(n *node) error { return errors.Join(n.Release("a"), n.add("a", next)) }, want: next, prepared: true,
		},
		"not wanted any more":                {do: func(n *node) error { return n.Remove("a") }, want: files{}},
		"no owner of it is left":             {do: func(n *node) error { return n.Retain(nil) }, want: files{}},
		"after it, the first is added again": {do: func(n *node) error { return n.add("a", before) }, want: before},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).start()
			n.must(n.add("a", before))
			n.must(n.addTo(n.Prepare, "a", next))
			if c.do != nil {
				n.must(c.do(n))
			}
			if diff := cmp.Diff(c.want, n.seen(ours)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := os.Stat(n.host(ours, ".drover", "v/x", fmt.Sprintf("%x", sha256.Sum256([]byte("two"))))); (err == nil) != c.prepared {
				t.Errorf("the new content: %v", err)
			}
			n.must(n.start().Retain(nil))
			if _, traces := n.see(ours)[".drover"]; traces {
				t.Error("after the last, .drover is there")
			}
		})
	}
}

// TestPrepareFindsConflicts: what Add would refuse is refused, and nothing is left of it.
func TestPrepareFindsConflicts(t *testing.T) {
	n := newNode(t).put(ours, files{"taken": "the host's"}).start()
	n.must(n.add("a", files{"x": "1"}))
	for name, next := range map[string]files{"another owner's": {"x": "2", "y": "y"}, "the host's": {"taken": "mine", "y": "y"}} {
		if err := n.addTo(n.Prepare, "b", next); !errors.As(err, new(*firmware.Conflict)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(files{"taken": "the host's", "x": "1"}, n.seen(ours)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		host  files
		a, b  files // a is staged, b is tried
		path  string
		owner string
	}{
		"with another owner":                {nil, files{"x": "1"}, files{"w": "w", "x": "2"}, "x", "ns/a"},
		"with the host":                     {files{"x": "own"}, nil, files{"w": "w", "x": "2"}, "x", ""},
		"with the host, same size":          {files{"x": "1"}, nil, files{"x": "2"}, "x", ""},
		"with a link, whatever it leads to": {files{"x": "->y", "y": "2"}, nil, files{"x": "2"}, "x", ""},
		"with a link to nowhere":            {files{"x": "->y"}, nil, files{"x": "2"}, "x", ""},
		"below a link":                      {files{"v": "->w", "w/own": ""}, nil, files{"v/x": "2"}, "v/x", ""},
		"below a link that leads out":       {files{"v": "->/etc"}, nil, files{"v/x": "2"}, "v/x", ""},
		"with a directory":                  {files{"x/own": ""}, nil, files{"x": "2"}, "x", ""},
		"below a file":                      {files{"v": "own"}, nil, files{"v/x": "2"}, "v/x", ""},
		"below another owner's file":        {nil, files{"v": "1"}, files{"v/x": "2"}, "v/x", "ns/a"},
		"with another owner's directory":    {nil, files{"v/x": "1"}, files{"v": "2"}, "v", "ns/a"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).put(ours, c.host).start()
			n.must(n.add("ns/a", c.a))
			before := n.see(ours)
			err := n.add("ns/b", c.b)
			var conflict *firmware.Conflict
			if !errors.As(err, &conflict) {
				t.Fatalf("error %v, want a Conflict", err)
			}
			if conflict.Path != c.path || conflict.Owner != c.owner || conflict.Dir != ours {
				t.Errorf("conflict %+v", conflict)
			}
			if diff := cmp.Diff(before, n.see(ours)); diff != "" {
				t.Errorf("changed (-before +after):\n%s", diff)
			}
			if got := n.Owners(c.path); c.owner != "" && len(c.a) == 1 && len(got) > 1 {
				t.Errorf("owners %v", got)
			}
			n.must(n.Remove("ns/a"))
			if c.owner != "" {
				n.must(n.add("ns/b", c.b))
			}
		})
	}
}

func TestSomebodyChangedOurs(t *testing.T) {
	n := newNode(t).start()
	n.must(n.add("ns/a", files{"x": "x"}))
	n.must(os.WriteFile(n.host(ours, "x"), []byte("y"), 0o600))
	var conflict *firmware.Conflict
	if err := n.add("ns/a", files{"x": "x"}); !errors.As(err, &conflict) || conflict.Owner != "" {
		t.Errorf("%v, want a Conflict with the host", err)
	}
}

func TestOwners(t *testing.T) {
	n := newNode(t).start()
	n.must(n.add("ns/b", files{"x": "x"}))
	n.must(n.add("ns/a", files{"x": "x", "y": "y"}))
	for name, want := range map[string][]string{"x": {"ns/a", "ns/b"}, "y": {"ns/a"}, "z": nil} {
		if diff := cmp.Diff(want, n.start().Owners(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, owner := range []string{"", "/etc"} {
		if err := n.add(owner, files{"x": "x"}); err == nil {
			t.Errorf("owner %q is taken", owner)
		}
	}
}

// Things that happen on the host while we work.
func TestSomebodyIsFaster(t *testing.T) {
	for name, c := range map[string]struct {
		at   string
		do   func(n *node) error
		ok   bool
		want files
	}{
		"same file appears":  {"link x", func(n *node) error { n.put(ours, files{"x": "2"}); return nil }, true, files{"x": "2", "w": "w"}},
		"other file appears": {"link x", func(n *node) error { n.put(ours, files{"x": "own"}); return nil }, false, files{"x": "own"}},
		"link appears": {"link x", func(n *node) error { n.put(ours, files{"x": "->/etc/passwd"}); return nil }, false,
			files{"x": "->/etc/passwd"}},
		"search path changes": {"rename firmware.json.tmp", func(n *node) error { return n.path.SetFirmwarePath(admin) }, false, files{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).put(ours, nil).start()
			var done bool
			n.OnStep(func(step string) {
				if step == c.at && !done {
					done = true
					n.must(c.do(n))
				}
			})
			if err := n.add("ns/a", files{"w": "w", "x": "2"}); (err == nil) != c.ok {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.want, n.seen(ours)); diff != "" || !done {
				t.Errorf("(-want +got), done %v:\n%s", done, diff)
			}
			n.must(n.Remove("ns/a"))
			delete(c.want, "w")
			if diff := cmp.Diff(c.want, n.see(ours)); diff != "" {
				t.Errorf("after removal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedVersionLeavesTheOldOne(t *testing.T) {
	for name, c := range map[string]struct {
		at   string
		do   func(n *node) error
		want files
	}{
		"its content vanishes": {
			"rename .drover/y/" + digestOf("2") + ".tmp",
			func(n *node) error { return os.Remove(n.host(ours, ".drover/y", digestOf("2")+".tmp")) },
			files{"v/x": "1", "y": "1"},
		},
		"a file of it is changed when another is replaced already": {
			"link y",
			func(n *node) error { return os.WriteFile(n.host(ours, "y"), []byte("mine"), 0o600) },
			files{"v/x": "1", "y": "mine"},
		},
		"the staging directory is swept": {
			"link v/x",
			func(n *node) error { return os.RemoveAll(n.host(ours, ".drover/v")) },
			files{"v/x": "1", "y": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).start()
			n.must(n.add("ns/a", files{"v/x": "1", "y": "1"}))
			var done bool
			n.OnStep(func(step string) {
				if step == c.at && !done {
					done = true
					n.must(c.do(n))
				}
			})
			if err := n.add("ns/a", files{"v/x": "2", "w/w": "w", "y": "2"}); err == nil || !done {
				t.Fatalf("error %v, done %v", err, done)
			}
			if diff := cmp.Diff(c.want, n.seen(ours)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := n.kernel(); got != ours {
				t.Errorf("search path %q", got)
			}
		})
	}
}

func TestLostLedger(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"gone":    os.Remove,
		"garbage": func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) },
		"empty":   func(file string) error { return os.Truncate(file, 0) },
		"newer":   func(file string) error { return os.WriteFile(file, []byte(`{"schema":2}`), 0o600) },
		"leads out": func(file string) error {
			return os.WriteFile(file, []byte(`{"schema":1,"dirs":{"/a":["../.."]}}`), 0o600)
		},
		"link": func(file string) error {
			return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).put(ours, files{"own": "own"}).start()
			n.must(n.add("ns/a", files{"own": "own", "x": "x"}))
			n.must(n.add("ns/b", files{"y": "y", "z": "1"}))
			staged := n.see(ours)
			n.must(damage(filepath.Join(n.opt.StateDir, "firmware.json")))
			n.start()
			if (n.Damage() == nil) != (name == "gone") {
				t.Errorf("damage: %v", n.Damage())
			}
			// Nobody knows who needs it: it stays until everybody who needs something was heard.
			n.must(n.Remove("ns/b"))
			n.must(n.add("ns/c", files{"own": "own"}))
			if diff := cmp.Diff(staged, n.see(ours)); diff != "" {
				t.Errorf("before Retain (-want +got):\n%s", diff)
			}
			n.must(n.add("ns/b", files{"y": "y", "z": "2"})) // nobody's file gives way
			n.must(n.start().Retain([]string{"ns/b", "ns/c"}))
			if diff := cmp.Diff(files{"own": "own", "y": "y", "z": "2"}, n.seen(ours)); diff != "" {
				t.Errorf("after Retain (-want +got):\n%s", diff)
			}
			n.must(n.Retain(nil))
			if diff := cmp.Diff(files{"own": "own"}, n.see(ours)); diff != "" {
				t.Errorf("after the last (-want +got):\n%s", diff)
			}
		})
	}
}
