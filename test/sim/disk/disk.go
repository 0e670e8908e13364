// SPDX-License-Identifier: Apache-2.0

// Package disk says what a directory tree may be after a power cut, on a file system that keeps a
// journal of names and none of content, such as ext4 and XFS:
//
//   - what was synced is there, and the directories in which it is;
//   - a name that was not synced since it was made, taken away or given to another file may be as
//     before, each for itself;
//   - a file whose content was not synced may be whole, empty, or as it was when it was synced.
//
// Files are told apart by their inodes' numbers. The file system must not use one again at once:
// tmpfs does not.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

type inode uint64

// place is where a name is.
type place struct {
	dir  inode
	name string
}

// tree is names and where they lead.
type tree struct {
	names map[inode]map[string]inode // by directory
	at    map[inode]place            // where each but the top is
}

func newTree() *tree { return &tree{map[inode]map[string]inode{}, map[inode]place{}} }

// put gives a file a name. It loses the one that it had, as another loses this.
func (t *tree) put(p place, i inode) {
	if old, ok := t.names[p.dir][p.name]; ok && old != i {
		delete(t.at, old)
	}
	if was, ok := t.at[i]; ok && was != p {
		delete(t.names[was.dir], was.name)
	}
	if t.names[p.dir] == nil {
		t.names[p.dir] = map[string]inode{}
	}
	t.names[p.dir][p.name], t.at[i] = i, p
}

// take takes a name away.
func (t *tree) take(p place) {
	if i, ok := t.names[p.dir][p.name]; ok {
		delete(t.at, i)
		delete(t.names[p.dir], p.name)
	}
}

// Disk knows what of a directory tree outlives a power cut.
type Disk struct {
	root   string
	synced *tree
	files  map[inode][]byte // content that was synced
	modes  map[inode]fs.FileMode
}

// New takes all that is in a directory for synced.
func New(root string) (*Disk, error) {
	d := &Disk{root: root}
	return d, d.begin()
}

// begin takes all that is there for synced.
func (d *Disk) begin() error {
	now, err := d.look()
	if err != nil {
		return err
	}
	d.synced, d.files, d.modes = now.tree, now.files, now.modes
	return nil
}

// Sync implements the agent's statefile.Sync.
func (d *Disk) Sync(f *os.File) error {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	i := number(info)
	if !info.IsDir() {
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		d.files[i], d.modes[i] = content, info.Mode()
		return d.reach(filepath.Dir(name))
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	there := map[string]bool{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		there[e.Name()] = true
		d.synced.put(place{i, e.Name()}, number(info))
		d.modes[number(info)] = info.Mode()
	}
	for name := range d.synced.names[i] {
		if !there[name] {
			d.synced.take(place{i, name})
		}
	}
	return d.reach(name)
}

// reach makes the names of a directory and of those that it is in outlive a cut.
func (d *Disk) reach(dir string) error {
	below, err := filepath.Rel(d.root, dir)
	if err != nil || strings.HasPrefix(below, "..") {
		return fmt.Errorf("sync: %s is not below %s", dir, d.root)
	}
	at := d.root
	info, err := os.Lstat(at)
	for name := range strings.SplitSeq(below, "/") {
		if err != nil || below == "." {
			break
		}
		parent := number(info)
		at = filepath.Join(at, name)
		if info, err = os.Lstat(at); err == nil {
			d.synced.put(place{parent, name}, number(info))
			d.modes[number(info)] = info.Mode()
		}
	}
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// state is a tree with what is in its files.
type state struct {
	*tree
	top   inode
	files map[inode][]byte
	modes map[inode]fs.FileMode
	paths []string // of all names, in their order
	found map[string]inode
}

// look reads all that is there now.
func (d *Disk) look() (*state, error) {
	s := &state{tree: newTree(), files: map[inode][]byte{}, modes: map[inode]fs.FileMode{}, found: map[string]inode{}}
	err := filepath.WalkDir(d.root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err //nolint:wrapcheck // below
		}
		i := number(info)
		s.modes[i] = info.Mode()
		if !e.IsDir() {
			if s.files[i], err = os.ReadFile(name); err != nil {
				return err //nolint:wrapcheck // below
			}
		}
		if name == d.root {
			s.top, s.found["."] = i, i
			return nil
		}
		below, err := filepath.Rel(d.root, name)
		s.paths = append(s.paths, below)
		s.found[below] = i
		s.put(place{s.found[filepath.Dir(below)], filepath.Base(below)}, i)
		return err //nolint:wrapcheck // below
	})
	if err != nil {
		return nil, fmt.Errorf("look at a disk: %w", err)
	}
	return s, nil
}

func number(info fs.FileInfo) inode {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return inode(st.Ino)
	}
	return 0
}

// Image is what a power cut has left.
type Image struct{ all []entry }

type entry struct {
	path    string
	mode    fs.FileMode
	content []byte
}

// Put makes the directory tree what an image says. All of it counts as synced then.
func (d *Disk) Put(image *Image) error {
	old, err := os.ReadDir(d.root)
	for _, e := range old {
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.root, e.Name())))
	}
	for _, e := range image.all {
		name := filepath.Join(d.root, e.path)
		if e.mode.IsDir() {
			err = errors.Join(err, os.Mkdir(name, e.mode.Perm()))
		} else {
			err = errors.Join(err, os.WriteFile(name, e.content, e.mode.Perm()))
		}
	}
	if err != nil {
		return fmt.Errorf("put a disk's image: %w", err)
	}
	return d.begin()
}
