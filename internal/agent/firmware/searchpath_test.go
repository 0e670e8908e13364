// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/firmware"
)

func TestChoose(t *testing.T) {
	const mine = "/var/lib/drover-firmware"
	wrote := func(boot, value, previous string) *firmware.Wrote {
		return &firmware.Wrote{Boot: boot, Value: value, Previous: previous}
	}
	for name, c := range map[string]struct {
		current string
		wrote   *firmware.Wrote
		want    firmware.Choice
	}{
		"nobody set one":            {"", nil, firmware.Choice{Dir: mine, Set: true, Wrote: wrote("b", mine, "")}},
		"only the kernel's newline": {"\n", nil, firmware.Choice{Dir: mine, Set: true, Wrote: wrote("b", mine, "")}},
		"upstream's default": {"/var/lib/firmware\n", nil,
			firmware.Choice{Dir: mine, Set: true, Wrote: wrote("b", mine, "/var/lib/firmware")}},
		"upstream's older default":  {"/lib/firmware/\n", nil, firmware.Choice{Dir: mine, Set: true, Wrote: wrote("b", mine, "/lib/firmware")}},
		"ours, written by us":       {mine + "\n", wrote("b", mine, ""), firmware.Choice{Dir: mine, Wrote: wrote("b", mine, "")}},
		"ours, by the command line": {mine, nil, firmware.Choice{Dir: mine}},
		"ours, in an earlier boot":  {mine, wrote("a", mine, ""), firmware.Choice{Dir: mine}},
		"a reboot undid ours": {"", wrote("a", mine, "/lib/firmware"),
			firmware.Choice{Dir: mine, Set: true, Wrote: wrote("b", mine, "")}},
		"our setting was another":     {"/old", wrote("b", "/old", ""), firmware.Choice{Dir: mine, Set: true, Wrote: wrote("b", mine, "")}},
		"an administrator's":          {"/srv/fw\n", nil, firmware.Choice{Dir: "/srv/fw"}},
		"an administrator's, over us": {"/srv/fw/\n", wrote("b", mine, ""), firmware.Choice{Dir: "/srv/fw"}},
		"not even a directory name":   {"fw", nil, firmware.Choice{Dir: "fw"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, firmware.Choose(c.current, mine, "b", c.wrote)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSearchPathIsSetAndRestored(t *testing.T) {
	for name, c := range map[string]struct{ before, during, after string }{
		"nobody's":   {"", ours, ""},
		"upstream's": {"/lib/firmware", ours, "/lib/firmware"},
		"ours":       {ours, ours, ours},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).start()
			n.must(n.path.SetFirmwarePath(c.before))
			n.must(n.add("ns/a", files{"a.bin": "a"}))
			n.must(n.add("ns/b", files{"b.bin": "b"}))
			if got := n.kernel(); got != c.during {
				t.Errorf("while staged %q, want %q", got, c.during)
			}
			n.must(n.start().Remove("ns/a"))
			if got := n.kernel(); got != c.during {
				t.Errorf("while one is staged %q, want %q", got, c.during)
			}
			n.must(n.start().Remove("ns/b"))
			if got := n.kernel(); got != c.after {
				t.Errorf("after the last %q, want %q", got, c.after)
			}
		})
	}
}

func TestAdministratorsPathIsKept(t *testing.T) {
	n := newNode(t).put(admin, files{"own.bin": "own"}).start()
	n.must(n.path.SetFirmwarePath(admin))
	n.must(n.add("ns/a", files{"a/a.bin": "a"}))
	if diff := cmp.Diff(files{"own.bin": "own", "a/a.bin": "a"}, n.seen(admin)); diff != "" {
		t.Errorf("staged (-want +got):\n%s", diff)
	}
	n.must(n.start().Remove("ns/a"))
	if diff := cmp.Diff(files{"own.bin": "own"}, n.see(admin)); diff != "" || n.kernel() != admin {
		t.Errorf("after removal: path %q (-want +got):\n%s", n.kernel(), diff)
	}
}

func TestAdministratorComesLater(t *testing.T) {
	n := newNode(t).put(admin, nil).start()
	n.must(n.add("ns/a", files{"a.bin": "a"}))
	n.must(n.path.SetFirmwarePath(admin))
	n.must(n.add("ns/a", files{"a.bin": "a"}))
	if diff := cmp.Diff(files{"a.bin": "a"}, n.seen(admin)); diff != "" {
		t.Errorf("staged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(files{}, n.see(ours)); diff != "" {
		t.Errorf("where it was (-want +got):\n%s", diff)
	}
	n.must(n.Remove("ns/a"))
	if got := n.kernel(); got != admin {
		t.Errorf("path %q, want the administrator's", got)
	}
}

func TestSomebodyElsesValueIsNotRestoredOver(t *testing.T) {
	n := newNode(t).start()
	n.must(n.add("ns/a", files{"a.bin": "a"}))
	n.must(n.path.SetFirmwarePath(admin))
	n.must(n.Remove("ns/a"))
	if got := n.kernel(); got != admin {
		t.Errorf("path %q, want %q", got, admin)
	}
	if diff := cmp.Diff(files{}, n.see(ours)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestUnusableDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		path    string
		foreign bool
		prepare func(n *node)
	}{
		"administrator's, not there":   {admin, true, func(*node) {}},
		"administrator's is a file":    {admin, true, func(n *node) { n.put("/srv", files{"admin firmware": ""}) }},
		"administrator's is no name":   {"relative", true, func(*node) {}},
		"administrator's leads out":    {admin, true, func(n *node) { n.put("/srv", files{"admin firmware": "->" + n.dir}) }},
		"ours is a file":               {"", false, func(n *node) { n.put("/var/lib", files{"firmware": ""}) }},
		"ours leads out of the host's": {"", false, func(n *node) { n.put("/var/lib", files{"firmware": "->/tmp"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).start()
			c.prepare(n)
			n.must(n.path.SetFirmwarePath(c.path))
			err := n.add("ns/a", files{"a.bin": "a"})
			var unusable *firmware.DirError
			if !errors.As(err, &unusable) || unusable.Foreign != c.foreign {
				t.Fatalf("%v, want a DirError, foreign %v", err, c.foreign)
			}
			if got := n.kernel(); got != c.path || len(n.Owners("a.bin")) > 0 {
				t.Errorf("path %q, owners %v: want no change", got, n.Owners("a.bin"))
			}
		})
	}
}

func TestRebootUndoesTheSearchPath(t *testing.T) {
	n := newNode(t).start()
	n.must(n.add("ns/a", files{"a.bin": "a"}))
	n.opt.BootID = "boot-b"
	n.must(n.path.SetFirmwarePath(""))
	n.must(n.start().add("ns/a", files{"a.bin": "a"}))
	if got := n.kernel(); got != ours {
		t.Errorf("path %q, want %q", got, ours)
	}
	// In the next boot somebody set the same value at the kernel's command line: it is not ours to
	// restore.
	n.opt.BootID = "boot-c"
	n.must(n.start().Remove("ns/a"))
	if got := n.kernel(); got != ours {
		t.Errorf("path %q, want %q", got, ours)
	}
}

func TestKernelWithoutSearchPath(t *testing.T) {
	n := newNode(t)
	n.must(os.Remove(string(n.path)))
	n.start()
	if err := n.add("ns/a", files{"a.bin": "a"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want the error of the search path", err)
	}
	if diff := cmp.Diff(files{}, n.see("/")); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
