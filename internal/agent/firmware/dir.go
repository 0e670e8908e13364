// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

const tmpSuffix = ".tmp"

// base is a directory that we change, one atomic step at a time.
type base struct {
	root *os.Root
	dir  string // its name on the host
	sync statefile.Sync
	step func(string)
	dog  *watchdog.Watchdog
}

// checkDir accepts the absolute, clean name of a directory that is not the root.
func checkDir(dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || strings.ContainsRune(dir, 0) {
		return fmt.Errorf("%q is not an absolute, clean directory name", dir)
	}
	return nil
}

// base opens a directory of the host. Links in its path are followed as long as they stay below
// the host's root; below the directory, none is.
func (s *Stage) base(dir string, create bool) (base, error) {
	if err := checkDir(dir); err != nil {
		return base{}, err
	}
	host, err := os.OpenRoot(s.opt.HostRoot)
	if err != nil {
		return base{}, fmt.Errorf("open the host's root: %w", err)
	}
	defer func() { _ = host.Close() }()
	name := strings.TrimPrefix(dir, "/")
	if create {
		if err := host.MkdirAll(name, 0o755); err != nil {
			return base{}, fmt.Errorf("create it: %w", err)
		}
	}
	root, err := host.OpenRoot(name)
	if err != nil {
		return base{}, fmt.Errorf("open it: %w", err)
	}
	return base{root: root, dir: dir, sync: s.opt.Sync, step: s.step, dog: s.opt.Watchdog}, nil
}

// mkdirAll makes a directory and its parents; none of them may be a link.
func (b base) mkdirAll(name string, mode fs.FileMode) error {
	if name == "." {
		return nil
	}
	if err := b.mkdirAll(path.Dir(name), mode); err != nil {
		return err
	}
	b.step("mkdir " + name)
	err := b.root.Mkdir(name, mode)
	if err == nil {
		// Whatever the umask: the host's processes look here too.
		err = b.root.Chmod(name, mode)
		return errors.Join(wrap("make", name, err), b.syncDir(path.Dir(name)))
	}
	if !errors.Is(err, fs.ErrExist) {
		return wrap("make", name, err)
	}
	dir, err := nofollow.OpenDir(b.root, name)
	if err != nil {
		return err
	}
	return wrap("close", name, dir.Close())
}

// write makes a file with fill's content, synced, under a name that only we use.
func (b base) write(name string, mode fs.FileMode, fill func(io.Writer) error) error {
	if err := b.remove(name); err != nil {
		return err
	}
	b.step("create " + name)
	f, err := b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return wrap("create", name, err)
	}
	b.step("fill " + name)
	err = errors.Join(f.Chmod(mode), fill(f))
	b.step("sync " + name)
	if err = errors.Join(err, b.sync.File(f), f.Close()); err != nil {
		return errors.Join(wrap("write", name, err), b.root.Remove(name))
	}
	return nil
}

func (b base) remove(name string) error {
	b.step("remove " + name)
	if err := b.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrap("remove", name, err)
	}
	return nil
}

// rename makes a complete file appear under its name, and the name durable.
func (b base) rename(tmp, name string) error {
	b.step("rename " + tmp)
	if err := b.root.Rename(tmp, name); err != nil {
		return wrap("replace", name, err)
	}
	return b.syncDir(path.Dir(name))
}

// rmdir removes a directory that is empty, and tells whether it is gone.
func (b base) rmdir(name string) (gone bool, err error) {
	info, err := b.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !info.IsDir():
		return true, nil // what took its place is not ours
	case err != nil:
		return false, wrap("look at", name, err)
	}
	b.step("rmdir " + name)
	err = b.root.Remove(name)
	switch {
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EBUSY):
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, wrap("remove", name, err)
	}
	return true, nil
}

func (b base) syncDir(name string) error {
	b.step("sync " + name)
	f, err := b.root.Open(name)
	if err != nil {
		return wrap("sync", name, err)
	}
	return wrap("sync", name, errors.Join(b.sync.File(f), f.Close()))
}

// seen is what is found under a name.
type seen struct {
	absent bool
	what   string // what is wrong with it, for Conflict
	digest string // of a regular file; empty if it cannot be the wanted one
	ours   bool   // it is as we staged it
}

const notStaged = "has other content, and the agent did not stage it"

// look tells what is under a name. It reads only what may be ours, or have the wanted content.
func (b base) look(s source) (seen, error) {
	f, info, err := b.open(s.path)
	var odd *nofollow.KindError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return seen{absent: true}, nil
	case errors.As(err, &odd):
		return seen{what: fmt.Sprintf("is not a regular file (%v)", odd)}, nil
	case err != nil:
		return seen{}, err
	}
	defer func() { _ = f.Close() }()
	marks, err := b.marksOf(s.path, info)
	if err != nil {
		return seen{}, err
	}
	if len(marks) == 0 && info.Size() != s.size {
		return seen{what: notStaged}, nil
	}
	digest, _, err := manifest.Sum(b.dog.Reader(f))
	if err != nil {
		return seen{}, wrap("read", s.path, err)
	}
	switch {
	case slices.Contains(marks, digest):
		return seen{digest: digest, ours: true}, nil
	case len(marks) > 0:
		return seen{digest: digest, what: "was changed after the agent staged it"}, nil
	}
	return seen{digest: digest, what: notStaged}, nil
}

// open opens a regular file, following no link.
func (b base) open(name string) (*os.File, fs.FileInfo, error) {
	parent := b.root
	if dir := path.Dir(name); dir != "." {
		opened, err := nofollow.OpenDir(b.root, dir)
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = opened.Close() }()
		parent = opened
	}
	f, err := nofollow.OpenFile(parent, path.Base(name))
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // only read from
		return nil, nil, wrap("look at", name, err)
	}
	return f, info, nil
}

func (b base) missingDirs(sources []source) ([]string, error) {
	known := map[string]bool{".": true}
	var missing []string
	for _, s := range sources {
		for dir := path.Dir(s.path); !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			_, err := b.root.Lstat(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
				missing = append(missing, dir)
			case err != nil:
				return nil, wrap("look at", dir, err)
			}
		}
	}
	return missing, nil
}

func wrap(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("firmware: %s %s: %w", verb, name, err)
}

// Conflict says that a firmware file cannot be staged because another has its name.
type Conflict struct {
	Dir  string // the directory on the host that firmware is staged in
	Path string
	// Owner for whom it is staged. Empty: the file is the host's, or was changed since it was staged.
	Owner string
	Found string
}

func (c *Conflict) Error() string {
	if c.Owner != "" {
		return fmt.Sprintf("firmware file %s is staged for %s with other content; bring the same file for both, or rename one of them",
			c.Path, c.Owner)
	}
	return fmt.Sprintf("firmware file %s on the host %s; remove it there, or leave it out of the image", path.Join(c.Dir, c.Path), c.Found)
}

// DirError says that the directory in which the kernel looks for firmware cannot be used.
type DirError struct {
	Dir     string
	Foreign bool // Dir is an administrator's choice, not our setting
	Err     error
}

func (e *DirError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("the agent cannot stage firmware in %s, which somebody set as the kernel's firmware_class.path: %v; "+
			"set it to the agent's firmware directory, or clear it", e.Dir, e.Err)
	}
	return fmt.Sprintf("the agent cannot stage firmware in %s on the host: %v; mount it writable, or set another firmware directory",
		e.Dir, e.Err)
}

func (e *DirError) Unwrap() error { return e.Err }
