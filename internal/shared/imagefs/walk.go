// SPDX-License-Identifier: Apache-2.0

package imagefs

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// way is a path that is being followed.
type way struct {
	at   []string // done, without links
	todo []string
	// via is the link of the path itself that is being followed, and rest how many parts of the path
	// come after it.
	via   *LinkError
	rest  int
	links int
	// passed are the directories of the path itself that were gone through, without links.
	passed []string
}

func (w *way) path() string { return path.Join(".", path.Join(w.at...)) }

// walk follows a path from the root, part by part, as the kernel does.
func (f *FS) walk(name string) (*way, fs.FileInfo, error) {
	w := &way{todo: strings.Split(name, "/")}
	var info fs.FileInfo
	var err error
	for err == nil && len(w.todo) > 0 {
		if w.via == nil || len(w.todo) <= w.rest {
			w.via = nil
			w.passed = append(w.passed, w.path())
		}
		part := w.todo[0]
		w.todo = w.todo[1:]
		switch part {
		case "..": // only links have it
			w.at = w.at[:max(len(w.at)-1, 0)]
			fallthrough
		case "", ".":
			info, err = fs.Lstat(f.root, w.path())
		default:
			info, err = f.step(w, part)
		}
	}
	if err == nil && w.via != nil && !usable(info.Mode()) {
		err = w.via.because("which is neither a file nor a directory")
	}
	if err != nil {
		return nil, nil, asked(name, err)
	}
	return w, info, nil
}

// step goes to one name in the directory where w is, or to where a link of this name begins.
func (f *FS) step(w *way, part string) (fs.FileInfo, error) {
	here := path.Join(append(slices.Clone(w.at), part)...)
	info, err := fs.Lstat(f.root, here)
	switch {
	case errors.Is(err, fs.ErrNotExist) && w.via != nil:
		return nil, w.via.because("and the image has no /" + here)
	case err != nil:
		return nil, err //nolint:wrapcheck // asked does
	case isLink(info.Mode()):
		return info, f.enter(w, here)
	case !info.IsDir() && w.via != nil && len(w.todo) > w.rest:
		return nil, w.via.because("and /" + here + " is not a directory")
	case !info.IsDir() && len(w.todo) > 0:
		return nil, &fs.PathError{Op: "open", Path: here, Err: fs.ErrNotExist}
	}
	w.at = append(w.at, part)
	return info, nil
}

func (f *FS) enter(w *way, here string) error {
	target, err := fs.ReadLink(f.root, here)
	if err != nil {
		return err //nolint:wrapcheck // asked does
	}
	if w.via == nil {
		w.via, w.rest = &LinkError{Path: here, Target: target}, len(w.todo)
	}
	w.links++
	switch {
	case target == "" || len(target) > maxTarget:
		return w.via.because("which leads to a link that is empty or too long")
	case w.links > maxLinks:
		return w.via.because("which leads to more than 40 links")
	case strings.HasPrefix(target, "/"):
		w.at = w.at[:0]
	}
	w.todo = append(strings.Split(target, "/"), w.todo...)
	return nil
}

func (e *LinkError) because(why string) error {
	e.Why = why
	return e
}
