// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/shared/imagefs"
)

// image is the mounted image. Package imagefs says where its links lead; root opens the files.
type image struct {
	root *os.Root
	fs   *imagefs.FS
}

func openImage(dir string) (image, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return image{}, fmt.Errorf("open image: %w", err)
	}
	return image{root: root, fs: imagefs.New(root.FS())}, nil
}

// clean makes a path of a Module's spec ("/opt", "opt/", "/") relative.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func within(elem ...string) string {
	if p := path.Join(elem...); p != "" {
		return p
	}
	return "."
}

func (i image) open(name string) (*os.File, error) {
	at, err := i.fs.Resolve(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	// O_NONBLOCK: do not wait for a pipe's writer.
	f, err := i.root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
	info, err := i.fs.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, unreadable(name, err)
	}
	return info.IsDir(), nil
}

func tooMany(name string, limit int) error {
	return manifest.Failed(manifest.ReasonImageTooLarge, "the node needs more than %d files or directories of the image (at /%s)", limit, name)
}

// files returns the paths in the image of all files below dir, and looks at limit entries at most.
func (i image) files(ctx context.Context, dir string, limit int) ([]string, error) {
	var all []string
	left := limit + 1 // dir is none of its own entries
	err := fs.WalkDir(i.fs, dir, func(name string, e fs.DirEntry, err error) error {
		left--
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("export: %w", ctx.Err())
		case left < 0, errors.Is(err, imagefs.ErrTooMany):
			return tooMany(name, limit)
		case err != nil:
			return unreadable(name, err)
		case e.IsDir() && strings.Count(name, "/")-strings.Count(dir, "/") > manifest.MaxDepth:
			return manifest.Failed(manifest.ReasonImageTooLarge, "/%s nests deeper than %d directories", name, manifest.MaxDepth)
		case e.Type()&fs.ModeSymlink != 0: // it leads nowhere
			_, err := e.Info()
			return unreadable(name, err)
		case e.Type().IsRegular():
			all = append(all, name)
		}
		return nil
	})
	return all, err //nolint:wrapcheck // the errors are ours
}

// kernels names the directories below lib/modules of dirName, for messages.
func (i image) kernels(dirName string) []string {
	entries, err := i.fs.ReadDir(within(dirName, "lib/modules"))
	if err != nil {
		return nil // the message says that nothing was found
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}
