// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	ours  = firmware.DefaultDir
	admin = "/srv/admin firmware"
	bootA = "boot-a"
)

// files maps paths to contents; a content that begins with "->" is a link to what follows.
type files map[string]string

// parameter is the kernel's search path, kept in a file as in sysfs: reading adds a newline.
type parameter string

func (p parameter) FirmwarePath() (string, error) {
	data, err := os.ReadFile(string(p))
	return string(data) + "\n", err
}

func (p parameter) SetFirmwarePath(value string) error {
	return os.WriteFile(string(p), []byte(value), 0o600)
}

// node is a host below a temporary directory.
type node struct {
	t    testing.TB
	dir  string
	opt  firmware.Options
	path parameter
	*firmware.Stage
}

func newNode(t testing.TB) *node { return nodeAt(t, t.TempDir()) }

func nodeAt(t testing.TB, dir string) *node {
	n := &node{t: t, dir: dir, path: parameter(filepath.Join(dir, "path"))}
	n.opt = firmware.Options{
		HostRoot: filepath.Join(dir, "host"), StateDir: filepath.Join(dir, "state"), BootID: bootA, SearchPath: n.path, Sync: statefile.NoSync,
	}
	for _, d := range []string{n.opt.HostRoot, n.opt.StateDir} {
		n.must(os.MkdirAll(d, 0o700))
	}
	if _, err := os.Stat(string(n.path)); err != nil {
		n.must(n.path.SetFirmwarePath(""))
	}
	return n
}

// start opens the stage anew, as a new process does.
func (n *node) start() *node {
	n.t.Helper()
	stage, err := firmware.Open(n.opt)
	n.must(err)
	n.Stage = stage
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// host is where a path of the host is.
func (n *node) host(name ...string) string {
	return filepath.Join(append([]string{n.opt.HostRoot}, name...)...)
}

// put writes files on the host below dir.
func (n *node) put(dir string, all files) *node {
	n.t.Helper()
	n.must(os.MkdirAll(n.host(dir), 0o755))
	write(n.t, n.host(dir), all)
	return n
}

// add stages a delivery that has those files.
func (n *node) add(owner string, all files) error {
	n.t.Helper()
	return n.Add(owner, delivery(n.t, all))
}

// delivery makes a tree as the store has it and returns its firmware.
func delivery(t testing.TB, all files) fs.FS {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "firmware"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "firmware"), all)
	sub, err := fs.Sub(os.DirFS(dir), "firmware")
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func write(t testing.TB, dir string, all files) {
	t.Helper()
	for name, content := range all {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(content, "->"); link {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// see returns everything below a directory of the host: files with contents, directories that are
// empty as "name/". What lies in .drover is left out; ".drover" itself is there with no content.
func (n *node) see(dir string) files {
	n.t.Helper()
	all := files{}
	err := filepath.WalkDir(n.host(dir), func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(n.host(dir), name)
		switch {
		case err != nil:
			return err
		case rel == ".drover":
			all[rel] = ""
			return fs.SkipDir
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			all[rel] = "->" + target
			return err
		case e.IsDir():
			below, err := os.ReadDir(name)
			if len(below) == 0 && rel != "." {
				all[rel+"/"] = ""
			}
			return err
		}
		data, err := os.ReadFile(name)
		all[rel] = string(data)
		return err
	})
	if os.IsNotExist(err) {
		return files{}
	}
	n.must(err)
	return all
}

// seen is see without .drover.
func (n *node) seen(dir string) files {
	n.t.Helper()
	all := n.see(dir)
	delete(all, ".drover")
	return all
}

// kernel is the search path now.
func (n *node) kernel() string {
	n.t.Helper()
	value, err := n.path.FirmwarePath()
	n.must(err)
	return strings.TrimSuffix(value, "\n")
}
