// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Unpack writes the content of an image into a folder, as a container would see it, and nothing
// outside of the folder. Every user can read the files, which are the caller's; devices and
// attributes other than the right to execute are left out.
func Unpack(ctx context.Context, image v1.Image, dir string, limits Limits) (err error) {
	layers, err := layersOf(image, limits)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the folder: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("close the folder", root.Close())) }()
	spent := &budget{limits: limits}
	for at, layer := range layers {
		u := &unpacker{root: root, fresh: map[string]bool{}}
		err := scan(ctx, layer, spent, func(h *tar.Header, content io.Reader) error {
			if err := spent.entry(h); err != nil {
				return err
			}
			return u.add(h, content)
		})
		if err != nil {
			return fmt.Errorf("layer %d of %d: %w", at+1, len(layers), err)
		}
	}
	return nil
}

// unpacker lays one layer over those below it.
type unpacker struct {
	// root: no name, and no link on the way, leads out of it.
	root *os.Root
	// fresh are the paths of this layer: its whiteouts only hide what lower layers brought.
	fresh map[string]bool
}

func (u *unpacker) add(h *tar.Header, content io.Reader) error {
	dir, base, err := locate(h)
	if err != nil || base == "" {
		return err
	}
	switch hides, isWhiteout := strings.CutPrefix(base, whiteoutPrefix); {
	case base == whiteoutOpaque:
		return refused(u.clear(dir))
	case isWhiteout:
		return refused(u.hide(path.Join(dir, hides)))
	}
	return u.place(path.Join(dir, base), h, content)
}

// hide removes what lower layers brought to a path, not what this one brings.
func (u *unpacker) hide(name string) error {
	if u.fresh[name] {
		return u.clear(name)
	}
	if err := u.root.RemoveAll(name); !errors.Is(err, fs.ErrNotExist) {
		return err //nolint:wrapcheck // refused does
	}
	return nil
}

// clear hides all that is in a folder.
func (u *unpacker) clear(dir string) error {
	info, err := u.root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // refused does
	}
	entries, err := fs.ReadDir(u.root.FS(), dir)
	if err != nil {
		return err //nolint:wrapcheck // refused does
	}
	for _, entry := range entries {
		if err := u.hide(path.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// place writes an entry, in place of what is there.
func (u *unpacker) place(name string, h *tar.Header, content io.Reader) error {
	for at := name; at != "."; at = path.Dir(at) {
		u.fresh[at] = true
	}
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = u.root.MkdirAll(path.Dir(name), 0o755)
	case err == nil && (!info.IsDir() || h.Typeflag != tar.TypeDir):
		err = u.root.RemoveAll(name)
	}
	if err != nil {
		return refused(err)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return refused(u.root.MkdirAll(name, 0o755))
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.file(name, h, content)
	case tar.TypeSymlink:
		// It may name anything: nothing here follows it out of the folder.
		return refused(u.root.Symlink(h.Linkname, name))
	case tar.TypeLink:
		target, err := entryPath(h.Linkname)
		if err != nil {
			return err
		}
		return refused(u.root.Link(target, name))
	}
	return nil // devices, pipes
}

// file writes a regular file. It keeps the time, which make goes by.
func (u *unpacker) file(name string, h *tar.Header, content io.Reader) (err error) {
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	out, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return refused(err)
	}
	_, err = io.Copy(out, content)
	err = errors.Join(err, out.Close())
	var local *fs.PathError
	switch {
	case errors.As(err, &local):
		return refused(err)
	case err != nil:
		return malformed(err)
	}
	return refused(u.root.Chtimes(name, h.ModTime, h.ModTime))
}

// refused marks an entry that cannot be written as the image's fault, unless it is the disk's.
func refused(err error) error {
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	for _, disk := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, fs.ErrPermission} {
		if errors.Is(err, disk) {
			return fmt.Errorf("write: %w", err)
		}
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}
