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
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// contentBound attributes do not fit the new content: the kernel would refuse the file.
var contentBound = []string{xattrPrefix + "security.ima", xattrPrefix + "security.evm"}

// change reads the wanted files and keeps those with a new content in o.Dir, sorted.
func (o Options) change(ctx context.Context, layers []v1.Layer, found []wanted, spent *budget) (changed []added, err error) {
	err = eachLayer(layers, found, func(layer v1.Layer, found []wanted) error {
		more, err := o.changeIn(ctx, layer, found, spent)
		changed = append(changed, more...)
		return err
	})
	slices.SortFunc(changed, func(a, b added) int { return strings.Compare(a.header.Name, b.header.Name) })
	return changed, err
}

// eachLayer visits the layers that hold wanted files, with these.
func eachLayer(layers []v1.Layer, found []wanted, visit func(v1.Layer, []wanted) error) error {
	byLayer := map[int][]wanted{}
	for _, one := range found {
		byLayer[one.layer] = append(byLayer[one.layer], one)
	}
	for _, at := range slices.Sorted(maps.Keys(byLayer)) {
		if err := visit(layers[at], byLayer[at]); err != nil {
			return fmt.Errorf("layer %d of %d: %w", at+1, len(layers), err)
		}
	}
	return nil
}

// fetched is an entry of a layer, and the file on this machine with its content.
type fetched struct {
	header *tar.Header
	local  string
}

// fetch takes the wanted files out of one layer into dir, by their entries. Then the layer has been
// read to its end and matches its digest.
func (b *budget) fetch(ctx context.Context, layer v1.Layer, found []wanted, dir string) (map[string]fetched, error) {
	local := map[string]string{} // by entry
	for n, one := range found {
		local[one.entry] = filepath.Join(dir, strconv.Itoa(n))
	}
	taken := map[string]fetched{}
	err := scan(ctx, layer, b, func(h *tar.Header, content io.Reader) error {
		name, err := entryPath(h.Name)
		if err != nil || local[name] == "" {
			return err
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse && h.Typeflag != tar.TypeCont {
			delete(taken, name)
			return nil
		}
		taken[name] = fetched{header: headerOf(tar.TypeReg, h), local: local[name]}
		return b.take(h, content, local[name])
	})
	if err != nil {
		return nil, err
	}
	for _, one := range found {
		if _, ok := taken[one.entry]; !ok {
			return nil, fmt.Errorf("%w: %s is a hard link to /%s, which is not a file of the same layer", ErrRefused, one.path, one.entry)
		}
	}
	return taken, nil
}

// changeIn changes the wanted files of one layer.
func (o Options) changeIn(ctx context.Context, layer v1.Layer, found []wanted, spent *budget) (changed []added, err error) {
	work, err := os.MkdirTemp(o.Dir, "content-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	taken, err := spent.fetch(ctx, layer, found, work)
	if err != nil {
		return nil, err
	}
	for n, one := range found {
		from := taken[one.entry]
		to := filepath.Join(work, "new-"+strconv.Itoa(n))
		isNew, err := o.changeOne(ctx, one.path, from.local, to)
		if err != nil {
			return nil, err
		}
		if isNew {
			content := filepath.Join(filepath.Base(work), filepath.Base(to))
			changed = append(changed, added{header: changedHeader(one.path, from.header), content: content})
		}
	}
	for _, from := range taken {
		err = errors.Join(err, wrap("remove", os.Remove(from.local)))
	}
	return changed, err
}

func changedHeader(name string, before *tar.Header) *tar.Header {
	h := *before
	h.Name, h.PAXRecords = name[1:], maps.Clone(before.PAXRecords)
	for _, attribute := range contentBound {
		delete(h.PAXRecords, attribute)
	}
	return &h
}

func (b *budget) take(h *tar.Header, content io.Reader, local string) (err error) {
	b.wanted += h.Size
	switch {
	case h.Size > b.limits.File:
		return fmt.Errorf("%w: /%s has %d bytes, more than %d", ErrRefused, h.Name, h.Size, b.limits.File)
	case b.wanted > b.limits.Changed:
		return fmt.Errorf("%w: the wanted files have more than %d bytes together", ErrRefused, b.limits.Changed)
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
func (o Options) changeOne(ctx context.Context, name, from, to string) (isNew bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("change %s: %w", name, err)
	}
	before, err := os.Open(from)
	if err != nil {
		return false, fmt.Errorf("change %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, wrap("change "+name, before.Close())) }()
	after, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, fmt.Errorf("keep %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, wrap("keep "+name, after.Close())) }()
	isNew, err = o.Change(name, before, after)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if !isNew {
		return false, wrap("forget "+name, os.Remove(to))
	}
	return true, nil
}
