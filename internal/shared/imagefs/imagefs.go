// SPDX-License-Identifier: Apache-2.0

// Package imagefs shows the content of an image with its links resolved. It is the product's only
// rule about links: they lead where they lead for a process whose root is the image's. Absolute
// ones go from the image's root, ".." above the root is the root, and so none leaves the image.
//
// A link that leads to no file or directory of the image is a [LinkError] when it is needed.
// Build, source and host directly below lib/modules/<kernel> are links to what only the build's
// machine or the node has: directories do not list them.
package imagefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const (
	maxLinks   = 40      // on the way to one file: the kernel's bound
	maxTarget  = 4096    // bytes of a link: the kernel's bound
	maxEntries = 100_000 // of a directory
)

// ErrTooMany says that a directory has more entries than any image needs.
var ErrTooMany = fmt.Errorf("more than %d files or directories", maxEntries)

// LinkError names a link that leads to no file or directory of the image. It never wraps
// [fs.ErrNotExist]: the link is there.
type LinkError struct {
	Path   string // of the link, from the image's root, without a leading slash
	Target string // as the link has it
	Why    string // where it leads, as the end of a sentence
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("/%s is a link to %s, %s", e.Path, e.Target, e.Why)
}

// FS is an image. Links show as what they lead to. One that leads nowhere stays a link among the
// entries of its directory, and its Info is the *LinkError.
type FS struct{ root fs.FS }

// New makes an FS of an image's root, which must not follow links out of the image; [os.Root] does
// not. Without fs.ReadLinkFS the root has no links.
func New(root fs.FS) *FS { return &FS{root: root} }

// Resolve returns the path of name without links. Its error is a *LinkError, an *fs.PathError that
// wraps fs.ErrNotExist, or the root's own.
func (f *FS) Resolve(name string) (string, error) {
	w, _, err := f.walk(name)
	if err != nil {
		return "", err
	}
	return w.path(), nil
}

// Open implements fs.FS. It opens nothing but regular files and directories.
func (f *FS) Open(name string) (fs.File, error) {
	w, info, err := f.walk(name)
	if err == nil && !usable(info.Mode()) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("neither a file nor a directory")}
	}
	if err != nil {
		return nil, err
	}
	file, err := f.root.Open(w.path())
	return file, asked(name, err)
}

// Stat implements fs.StatFS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	_, info, err := f.walk(name)
	return info, err
}

// ReadDir implements fs.ReadDirFS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	w, _, err := f.walk(name)
	if err != nil {
		return nil, err
	}
	all, err := f.list(w.path())
	if err != nil {
		return nil, asked(name, err)
	}
	all = slices.DeleteFunc(all, func(e fs.DirEntry) bool { return isLink(e.Type()) && ofNode(path.Join(name, e.Name())) })
	for i, e := range all {
		if isLink(e.Type()) {
			all[i] = f.follow(name, w, e.Name())
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// Files visits the regular files below dir, in lexical order. A link that leads nowhere ends it
// with the *LinkError, and more than 100,000 files and directories with ErrTooMany.
func (f *FS) Files(dir string, visit func(name string) error) error {
	left := maxEntries
	err := fs.WalkDir(f, dir, func(name string, e fs.DirEntry, err error) error {
		left--
		switch {
		case err != nil:
			return err
		case left < 0:
			return &fs.PathError{Op: "list", Path: name, Err: ErrTooMany}
		case isLink(e.Type()):
			_, err := e.Info()
			return err //nolint:wrapcheck // a LinkError
		case e.Type().IsRegular():
			return visit(name)
		}
		return nil
	})
	return err //nolint:wrapcheck // the errors are of FS and of visit
}

func isLink(mode fs.FileMode) bool { return mode&fs.ModeSymlink != 0 }

func usable(mode fs.FileMode) bool { return mode.IsRegular() || mode.IsDir() }

// ofNode tells whether a link leads to what a node or a build's machine has, by convention: kernel
// headers and sources, and the node's own modules, through which depmod indexes them.
func ofNode(name string) bool {
	switch path.Base(name) {
	case "build", "source", "host":
		modules := path.Dir(path.Dir(name))
		return modules == "lib/modules" || strings.HasSuffix(modules, "/lib/modules")
	}
	return false
}

// list returns the entries of a directory. A huge one is noticed before all of it is in memory.
func (f *FS) list(at string) (all []fs.DirEntry, err error) {
	file, err := f.root.Open(at)
	if err != nil {
		return nil, err //nolint:wrapcheck // asked does
	}
	defer func() { _ = file.Close() }() // only read from
	dir, ok := file.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "list", Path: at, Err: errors.New("not a directory")}
	}
	for {
		some, err := dir.ReadDir(256)
		all = append(all, some...)
		switch {
		case len(all) > maxEntries:
			return nil, &fs.PathError{Op: "list", Path: at, Err: ErrTooMany}
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err //nolint:wrapcheck // asked does
		}
	}
}

// asked is an error of the root about the name that was asked for.
func asked(name string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return &fs.PathError{Op: at.Op, Path: name, Err: at.Err}
	}
	return err
}

// entry is a link in a directory, as what it leads to.
type entry struct {
	name string
	info fs.FileInfo
	err  error
}

// Name implements fs.DirEntry.
func (e entry) Name() string { return e.name }

// IsDir implements fs.DirEntry.
func (e entry) IsDir() bool { return e.Type().IsDir() }

// Type implements fs.DirEntry: that of what the link leads to, if it leads anywhere.
func (e entry) Type() fs.FileMode {
	if e.err != nil {
		return fs.ModeSymlink
	}
	return e.info.Mode().Type()
}

// Info implements fs.DirEntry.
func (e entry) Info() (fs.FileInfo, error) { return e.info, e.err }

// follow finds where a link in directory dir leads, to which w led. One to dir itself, or to a
// directory on the way to it, would have no end.
func (f *FS) follow(dir string, w *way, name string) entry {
	to, info, err := f.walk(path.Join(dir, name))
	if err == nil && (to.path() == w.path() || slices.Contains(w.passed, to.path())) {
		e := &LinkError{Path: path.Join(w.path(), name), Why: "which leads to a directory that it is in"}
		if e.Target, err = fs.ReadLink(f.root, e.Path); err == nil {
			err = e
		}
	}
	return entry{name: name, info: info, err: err}
}
