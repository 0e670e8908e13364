// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// header is one entry of the layer that is made.
type header struct {
	path string
	attr *attributes
}

// changedFile is a file with its new content in a local file.
type changedFile struct {
	header header
	local  string
	size   int64
}

// contentBound attributes do not fit the new content: the kernel would refuse the file.
var contentBound = []string{xattrPrefix + "security.ima", xattrPrefix + "security.evm"}

// change reads the wanted files and keeps those with a new content in local files, sorted.
func (o Options) change(ctx context.Context, layers []v1.Layer, found []wanted, spent *budget) ([]changedFile, error) {
	byLayer := map[int][]wanted{}
	for _, one := range found {
		byLayer[one.layer] = append(byLayer[one.layer], one)
	}
	var changed []changedFile
	for _, at := range slices.Sorted(maps.Keys(byLayer)) {
		more, err := o.changeIn(ctx, layers[at], byLayer[at], spent)
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", at+1, len(layers), err)
		}
		changed = append(changed, more...)
	}
	slices.SortFunc(changed, func(a, b changedFile) int { return strings.Compare(a.header.path, b.header.path) })
	return changed, nil
}

// changeIn takes the wanted files out of one layer, and changes them once the layer has been read
// to its end and matches its digest.
func (o Options) changeIn(ctx context.Context, layer v1.Layer, found []wanted, spent *budget) (changed []changedFile, err error) {
	work, err := os.MkdirTemp(o.Dir, "content-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	entries := map[string]changedFile{}
	byEntry := map[string]bool{}
	for _, one := range found {
		byEntry[one.entry] = true
	}
	err = scan(ctx, layer, spent, func(h *tar.Header, content io.Reader) error {
		name, err := entryPath(h.Name)
		if err != nil || !byEntry[name] {
			return err
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse && h.Typeflag != tar.TypeCont {
			delete(entries, name)
			return nil
		}
		local := path.Join(work, strconv.Itoa(len(entries)))
		if before, ok := entries[name]; ok {
			local = before.local
		}
		one := changedFile{header: header{path: "/" + name, attr: attributesOf(h)}, local: local}
		entries[name] = one
		return o.take(h, content, local, spent)
	})
	if err != nil {
		return nil, err
	}
	for n, one := range found {
		from, ok := entries[one.entry]
		if !ok {
			return nil, fmt.Errorf("%w: %s is a hard link to /%s, which is not a file of the same layer", ErrRefused, one.path, one.entry)
		}
		to := changedFile{header: header{path: one.path, attr: from.header.attr}, local: path.Join(work, "new-"+strconv.Itoa(n))}
		isNew, err := o.changeOne(ctx, from.local, &to)
		if err != nil {
			return nil, err
		}
		if isNew {
			changed = append(changed, to)
		}
	}
	for _, one := range entries {
		err = errors.Join(err, wrap("remove", os.Remove(one.local)))
	}
	return changed, err
}

func (o Options) take(h *tar.Header, content io.Reader, local string, spent *budget) (err error) {
	spent.wanted += h.Size
	switch {
	case h.Size > o.Limits.File:
		return fmt.Errorf("%w: /%s has %d bytes, more than %d", ErrRefused, h.Name, h.Size, o.Limits.File)
	case spent.wanted > o.Limits.Changed:
		return fmt.Errorf("%w: the wanted files have more than %d bytes together", ErrRefused, o.Limits.Changed)
	}
	to, err := os.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keep %s: %w", h.Name, err)
	}
	defer func() { err = errors.Join(err, wrap("keep "+h.Name, to.Close())) }()
	if _, err := io.Copy(to, content); err != nil {
		return malformed(err)
	}
	return nil
}

// changeOne changes one file, from one local file to another.
func (o Options) changeOne(ctx context.Context, from string, to *changedFile) (isNew bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("change %s: %w", to.header.path, err)
	}
	before, err := os.Open(from)
	if err != nil {
		return false, fmt.Errorf("change %s: %w", to.header.path, err)
	}
	defer func() { err = errors.Join(err, wrap("change "+to.header.path, before.Close())) }()
	after, err := os.OpenFile(to.local, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, fmt.Errorf("keep %s: %w", to.header.path, err)
	}
	defer func() { err = errors.Join(err, wrap("keep "+to.header.path, after.Close())) }()
	isNew, err = o.Change(to.header.path, before, after)
	if err != nil {
		return false, fmt.Errorf("%s: %w", to.header.path, err)
	}
	if !isNew {
		return false, wrap("forget "+to.header.path, os.Remove(to.local))
	}
	if to.size, err = after.Seek(0, io.SeekCurrent); err != nil {
		return false, fmt.Errorf("keep %s: %w", to.header.path, err)
	}
	attr := *to.header.attr
	attr.xattrs = maps.Clone(attr.xattrs)
	for _, name := range contentBound {
		delete(attr.xattrs, name)
	}
	to.header.attr = &attr
	return true, nil
}
