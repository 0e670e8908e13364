// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
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
)

// image is the mounted image. Only relative links that stay in it are followed.
type image struct{ root *os.Root }

// clean makes a path of a Module's spec ("/opt", "opt/", "/") relative.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func within(elem ...string) string {
	if p := path.Join(elem...); p != "" {
		return p
	}
	return "."
}

func (i image) open(name string) (*os.File, error) {
	// O_NONBLOCK: do not wait for a pipe's writer.
	f, err := i.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		_ = f.Close() // only read from
		return nil, unreadable(name, err)
	}
	return f, nil
}

// isDir tells whether name is a directory (or a link to one).
func (i image) isDir(name string) (bool, error) {
	info, err := i.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, unreadable(name, err)
	}
	return info.IsDir(), nil
}

// list returns a directory's entries, sorted, at most limit.
func (i image) list(name string, limit int) ([]fs.DirEntry, error) {
	dir, err := i.root.Open(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer func() { _ = dir.Close() }()
	var all []fs.DirEntry
	for {
		some, err := dir.ReadDir(256)
		all = append(all, some...)
		if len(all) > limit {
			return nil, tooMany(name, limit)
		}
		if errors.Is(err, io.EOF) {
			slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
			return all, nil
		}
		if err != nil {
			return nil, unreadable(name, err)
		}
	}
}

func tooMany(name string, limit int) error {
	return manifest.Failed(manifest.ReasonImageTooLarge, "the node needs more than %d files or directories of the image (at /%s)", limit, name)
}

// isFile tells whether an entry is a regular file, or a link to one inside the image.
func (i image) isFile(name string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := i.root.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// files returns the paths in the image of all files below dir, and looks at limit entries at most.
func (i image) files(ctx context.Context, dir string, limit int) ([]string, error) {
	var all []string
	left := limit
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("export: %w", err)
		}
		if depth > manifest.MaxDepth {
			return manifest.Failed(manifest.ReasonImageTooLarge, "/%s nests deeper than %d directories", dir, manifest.MaxDepth)
		}
		entries, err := i.list(dir, limit)
		if err != nil {
			return err
		}
		if left -= len(entries); left < 0 {
			return tooMany(dir, limit)
		}
		for _, e := range entries {
			name := within(dir, e.Name())
			switch {
			case e.IsDir():
				if err := walk(name, depth+1); err != nil {
					return err
				}
			case i.isFile(name, e):
				all = append(all, name)
			}
		}
		return nil
	}
	return all, walk(dir, 0)
}

// kernels names the directories below lib/modules of dirName, for messages.
func (i image) kernels(dirName string) []string {
	entries, err := i.list(within(dirName, "lib/modules"), manifest.MaxFiles)
	if err != nil {
		return nil // the message says that nothing was found
	}
	var all []string
	for _, e := range entries {
		if ok, err := i.isDir(within(dirName, "lib/modules", e.Name())); err == nil && ok {
			all = append(all, e.Name())
		}
	}
	return all
}
