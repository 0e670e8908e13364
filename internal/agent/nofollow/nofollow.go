// SPDX-License-Identifier: Apache-2.0

// Package nofollow opens directories and regular files below an os.Root without following any
// symbolic link. If somebody swaps names meanwhile, it refuses: what was listed is what is read.
package nofollow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// KindError says that a path is not of the kind it must be.
type KindError struct {
	Path string
	Mode fs.FileMode
	// Swapped: the path named something else when it was opened than when it was looked at.
	Swapped bool
}

func (e *KindError) Error() string {
	switch {
	case e.Swapped:
		return e.Path + " was replaced while it was read"
	case e.Mode&fs.ModeSymlink != 0:
		return e.Path + " is a symbolic link"
	default:
		return fmt.Sprintf("%s is neither a regular file nor a directory where one is expected (%s)", e.Path, e.Mode.Type())
	}
}

// LimitError says that a tree has more entries, or nests deeper, than Walk may visit.
type LimitError struct {
	Path   string
	Limits Limits
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("more than %d entries, or nested deeper than %d directories", e.Limits.Entries, e.Limits.Depth)
}

// Limits bound a walk.
type Limits struct {
	Entries int // files and directories
	Depth   int // nested directories
}

// OpenDir opens a directory below root; every component of name must be a real directory.
func OpenDir(root *os.Root, name string) (*os.Root, error) {
	current, done := root, ""
	for part := range strings.SplitSeq(name, "/") {
		done = path.Join(done, part)
		next, err := openDir(current, part, done)
		if current != root {
			err = errors.Join(err, current.Close())
		}
		if err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

func openDir(parent *os.Root, name, full string) (*os.Root, error) {
	seen, err := parent.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", full, err)
	}
	if !seen.IsDir() {
		return nil, &KindError{Path: full, Mode: seen.Mode()}
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return nil, swapped(parent, name, full, err)
	}
	opened, err := dir.Stat(".")
	if err == nil && !os.SameFile(seen, opened) {
		err = &KindError{Path: full, Swapped: true}
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// OpenFile opens the regular file called name, which must lie directly in root.
func OpenFile(root *os.Root, name string) (*os.File, error) { return openFile(root, name, name) }

// ReadFile reads at most limit bytes of a regular file directly in root.
func ReadFile(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := OpenFile(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

func openFile(parent *os.Root, name, full string) (*os.File, error) {
	seen, err := parent.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", full, err)
	}
	if !seen.Mode().IsRegular() {
		return nil, &KindError{Path: full, Mode: seen.Mode()}
	}
	// O_NONBLOCK: if it has become a pipe, do not wait for a writer.
	f, err := parent.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, swapped(parent, name, full, err)
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(seen, opened) {
		err = &KindError{Path: full, Swapped: true}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// swapped explains why something that was just listed cannot be opened. It may be back by now, but
// the error tells that there was a link or a file: ELOOP, ENOTDIR, or an error of os.Root itself,
// which refuses a link that leads out.
func swapped(parent *os.Root, name, full string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == syscall.ELOOP || errno == syscall.ENOTDIR {
		return &KindError{Path: full, Swapped: true}
	}
	if now, lerr := parent.Lstat(name); lerr == nil && now.Mode()&fs.ModeSymlink != 0 {
		return &KindError{Path: full, Swapped: true}
	}
	return fmt.Errorf("open %s: %w", full, err)
}

// Walk calls visit with every regular file below root, open for reading, and closes it afterwards.
// What is neither a regular file nor a directory ends the walk with a KindError.
func Walk(ctx context.Context, root *os.Root, limits Limits, visit func(name string, f *os.File) error) error {
	w := walker{limits: limits, left: limits.Entries, visit: visit}
	return w.dir(ctx, root, "", 0)
}

type walker struct {
	limits Limits
	left   int
	visit  func(name string, f *os.File) error
}

func (w *walker) dir(ctx context.Context, dir *os.Root, at string, depth int) error {
	if depth > w.limits.Depth {
		return &LimitError{Path: at, Limits: w.limits}
	}
	names, err := w.names(dir, at)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("walk: %w", err)
		}
		if err := w.entry(ctx, dir, name, path.Join(at, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// names lists a directory in portions: a huge one is noticed before it is in memory.
func (w *walker) names(dir *os.Root, at string) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", at, err)
	}
	defer func() { _ = f.Close() }()
	var all []string
	for {
		some, err := f.Readdirnames(256)
		all = append(all, some...)
		if w.left -= len(some); w.left < 0 {
			return nil, &LimitError{Path: at, Limits: w.limits}
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", at, err)
		}
	}
}

func (w *walker) entry(ctx context.Context, dir *os.Root, name, full string, depth int) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return fmt.Errorf("look at %s: %w", full, err)
	}
	if info.IsDir() {
		sub, err := openDir(dir, name, full)
		if err != nil {
			return err
		}
		return errors.Join(w.dir(ctx, sub, full, depth+1), sub.Close())
	}
	f, err := openFile(dir, name, full)
	if err != nil {
		return err
	}
	return errors.Join(w.visit(full, f), f.Close())
}
