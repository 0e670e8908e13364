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
func (o Options) change(ctx context.Context, layers []v1.Layer, found []wanted, spent *budget) ([]added, error) {
	byLayer := map[int][]wanted{}
	for _, one := range found {
		byLayer[one.layer] = append(byLayer[one.layer], one)
	}
	var changed []added
	for _, at := range slices.Sorted(maps.Keys(byLayer)) {
		more, err := o.changeIn(ctx, layers[at], byLayer[at], spent)
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", at+1, len(layers), err)
		}
		changed = append(changed, more...)
	}
	slices.SortFunc(changed, func(a, b added) int { return strings.Compare(a.header.Name, b.header.Name) })
	return changed, nil
}

// changeIn takes the wanted files out of one layer, and changes them once the layer has been read
// to its end and matches its digest.
func (o Options) changeIn(ctx context.Context, layer v1.Layer, found []wanted, spent *budget) (changed []added, err error) {
	work, err := os.MkdirTemp(o.Dir, "content-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	local := map[string]string{} // by entry
	for n, one := range found {
		local[one.entry] = filepath.Join(work, strconv.Itoa(n))
	}
	taken := map[string]*tar.Header{}
	err = scan(ctx, layer, spent, func(h *tar.Header, content io.Reader) error {
		name, err := entryPath(h.Name)
		if err != nil || local[name] == "" {
			return err
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse && h.Typeflag != tar.TypeCont {
			delete(taken, name)
			return nil
		}
		taken[name] = headerOf(tar.TypeReg, h)
		return o.take(h, content, local[name], spent)
	})
	if err != nil {
		return nil, err
	}
	for n, one := range found {
		from, ok := taken[one.entry]
		if !ok {
			return nil, fmt.Errorf("%w: %s is a hard link to /%s, which is not a file of the same layer", ErrRefused, one.path, one.entry)
		}
		to := filepath.Join(work, "new-"+strconv.Itoa(n))
		isNew, err := o.changeOne(ctx, one.path, local[one.entry], to)
		if err != nil {
			return nil, err
		}
		if isNew {
			changed = append(changed, added{header: changedHeader(one.path, from), content: filepath.Join(filepath.Base(work), filepath.Base(to))})
		}
	}
	for name := range taken {
		err = errors.Join(err, wrap("remove", os.Remove(local[name])))
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
