// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
)

// DamagedError says that a tree is no longer what was imported. It was moved aside and its
// deliveries forgotten; a new delivery replaces it.
type DamagedError struct {
	Digest  string
	Problem string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("stored tree %.12s… is damaged and was moved aside: %s", e.Digest, e.Problem)
}

// Unwrap makes a damaged tree count as a missing one.
func (e *DamagedError) Unwrap() error { return fs.ErrNotExist }

// verify reads a tree and compares it with its digest. After a *DamagedError it is gone; other
// errors say nothing about it.
func (s *Store) verify(ctx context.Context, digest string) error {
	dir := s.tree(digest)
	got, err := s.rehash(ctx, dir)
	if err == nil && got == digest {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("verify: %w", ctx.Err())
	}
	if statefile.Passing(err) {
		return fmt.Errorf("verify: %w", err)
	}
	damage := &DamagedError{Digest: digest, Problem: "its content does not match its digest"}
	if err != nil {
		damage.Problem = err.Error()
	}
	return errors.Join(damage, s.forget(digest))
}

func (s *Store) rehash(ctx context.Context, dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("open: %w", err)
	}
	defer func() { _ = root.Close() }()
	var entries []manifest.Entry
	limits := nofollow.Limits{Entries: 2*s.opt.MaxFiles + 1, Depth: manifest.MaxDepth}
	err = nofollow.Walk(ctx, root, limits, func(name string, f *os.File) error {
		sum, n, err := manifest.Sum(f)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		entries = append(entries, manifest.Entry{Path: name, Size: n, SHA256: sum})
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("walk: %w", err)
	}
	slices.SortFunc(entries, func(a, b manifest.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return digestOf(entries), nil
}

func (s *Store) forget(digest string) error {
	files, err := os.ReadDir(s.path(deliveriesDir))
	if err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	var all []error
	for _, f := range files {
		r, readErr := s.read(idOf(f))
		if readErr == nil && r.Digest == digest {
			all = append(all, os.Remove(s.recordPath(r.ID)))
		}
	}
	tree := s.tree(digest)
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		all = append(all, s.setAside(tree))
	}
	return errors.Join(all...)
}

// setAside moves a damaged thing aside and removes the oldest of them.
func (s *Store) setAside(name string) error {
	to := filepath.Join(s.path(damagedDir), strconv.FormatInt(s.opt.Clock.Now().UnixNano(), 36)+"-"+filepath.Base(name))
	if err := os.Rename(name, to); err != nil {
		return fmt.Errorf("move aside: %w", err)
	}
	if err := s.boundDamaged(keptDamaged); err != nil {
		return fmt.Errorf("bound damaged: %w", err)
	}
	return nil
}

// boundDamaged keeps so many of the newest damaged things.
func (s *Store) boundDamaged(keep int) error {
	olds, err := os.ReadDir(s.path(damagedDir)) // sorted by name, so by time
	for _, old := range olds[:max(len(olds)-keep, 0)] {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.path(damagedDir), old.Name())))
	}
	return err
}
