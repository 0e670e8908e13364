// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Read gives the content of an image as a container sees it, with its links as they are: package
// imagefs says where they lead. Of what it is given, want names the files that are to be opened,
// without links on the way; no other can be. Their content lies in o.Dir.
func Read(ctx context.Context, image v1.Image, o Options, want func(fs.FS) ([]string, error)) (fs.FS, error) {
	layers, err := layersOf(image, o.Limits)
	if err != nil {
		return nil, err
	}
	spent := &budget{limits: o.Limits}
	seen, err := look(ctx, layers, spent)
	if err != nil {
		return nil, err
	}
	names, err := want(seen)
	if err != nil {
		return nil, err
	}
	if len(names) > o.Limits.Files {
		return nil, fmt.Errorf("%w: more than %d files are wanted", ErrRefused, o.Limits.Files)
	}
	var found []wanted
	for _, name := range names {
		one, err := seen.wanted(name)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	seen.local = map[string]string{}
	err = eachLayer(layers, found, func(layer v1.Layer, found []wanted) error {
		work, err := os.MkdirTemp(o.Dir, "content-")
		if err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		taken, err := spent.fetch(ctx, layer, found, work)
		for _, one := range found {
			seen.local[one.path] = taken[one.entry].local
		}
		return err
	})
	return seen, err
}

// at finds what has a path. No part of the path but the last may be a link.
func (v *view) at(name string) (*node, error) {
	at := &v.root
	if name == "." {
		return at, nil
	}
	for end := range len(name) + 1 {
		if end < len(name) && name[end] != '/' {
			continue
		}
		next := at.children[path.Base(name[:end])]
		switch {
		case at.kind != folder || next == nil || next.kind == gone:
			return nil, &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
		case next.unclear:
			return nil, fmt.Errorf("%w: layers do not agree on whether /%s is a folder", ErrRefused, name[:end])
		}
		at = next
	}
	return at, nil
}

// Lstat implements fs.ReadLinkFS.
func (v *view) Lstat(name string) (fs.FileInfo, error) {
	at, err := v.at(name)
	if err != nil {
		return nil, err
	}
	return info{name: path.Base(name), node: at}, nil
}

// ReadLink implements fs.ReadLinkFS.
func (v *view) ReadLink(name string) (string, error) {
	at, err := v.at(name)
	if err == nil && at.kind != symlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	if err != nil {
		return "", err
	}
	return at.link, nil
}

// Open implements fs.FS.
func (v *view) Open(name string) (fs.File, error) {
	at, err := v.at(name)
	switch {
	case err != nil:
		return nil, err
	case at.kind == folder:
		return at.open(path.Base(name)), nil
	case v.local["/"+name] == "":
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("its content was not asked for")}
	}
	content, err := os.Open(v.local["/"+name])
	return content, wrap("open the content of "+name, err)
}

// info is what a node tells of itself.
type info struct {
	name string
	*node
}

// Name implements fs.FileInfo.
func (i info) Name() string { return i.name }

// Size implements fs.FileInfo; it is not known.
func (i info) Size() int64 { return 0 }

// ModTime implements fs.FileInfo.
func (i info) ModTime() time.Time { return epoch }

// IsDir implements fs.FileInfo.
func (i info) IsDir() bool { return i.kind == folder }

// Sys implements fs.FileInfo.
func (i info) Sys() any { return nil }

// Mode implements fs.FileInfo. Permissions are not the image's.
func (i info) Mode() fs.FileMode {
	switch i.kind {
	case folder:
		return fs.ModeDir | 0o755
	case file, hardlink:
		return 0o644
	case symlink:
		return fs.ModeSymlink | 0o777
	case other, gone:
	}
	return fs.ModeIrregular
}

// opened is a folder whose entries are read.
type opened struct {
	info
	left []fs.DirEntry
}

func (n *node) open(name string) *opened {
	o := &opened{info: info{name: name, node: n}}
	for name, child := range n.children {
		if child.kind != gone {
			o.left = append(o.left, fs.FileInfoToDirEntry(info{name: name, node: child}))
		}
	}
	return o
}

// Stat implements fs.File.
func (o *opened) Stat() (fs.FileInfo, error) { return o.info, nil }

// Close implements fs.File.
func (o *opened) Close() error { return nil }

// Read implements fs.File.
func (o *opened) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: o.name, Err: errors.New("is a directory")}
}

// ReadDir implements fs.ReadDirFile.
func (o *opened) ReadDir(n int) ([]fs.DirEntry, error) {
	some := o.left
	if n > 0 {
		if len(o.left) == 0 {
			return nil, io.EOF
		}
		some = o.left[:min(n, len(o.left))]
	}
	o.left = o.left[len(some):]
	return slices.Clone(some), nil
}
