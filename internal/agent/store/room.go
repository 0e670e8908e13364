// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/drover-project/drover/internal/agent/manifest"
)

// makeRoom checks that a delivery fits, if need be without what is kept for a post-mortem. Its
// error wraps syscall.ENOSPC.
func (s *Store) makeRoom(m manifest.Manifest) error {
	if _, err := os.Lstat(s.tree(digestOf(m.Files))); err == nil {
		return nil // shared with another delivery
	}
	var size int64
	for _, e := range m.Files {
		size += e.Size
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.fits(size)
	if errors.Is(err, syscall.ENOSPC) {
		if removed := s.boundDamaged(0); removed != nil {
			return errors.Join(err, removed)
		}
		err = s.fits(size)
	}
	return err
}

func (s *Store) fits(size int64) error {
	var held int64
	err := filepath.WalkDir(s.path(treesDir), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		held += info.Size()
		return nil
	})
	if err != nil {
		return fmt.Errorf("measure the store: %w", err)
	}
	if held+size > s.opt.MaxTotal {
		return fmt.Errorf("the delivery needs %s, and the store has %s of at most %s: %w", mib(size), mib(held), mib(s.opt.MaxTotal),
			syscall.ENOSPC)
	}
	var on syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &on); err != nil {
		return fmt.Errorf("look for free space: %w", err)
	}
	if free := int64(on.Bavail) * int64(on.Bsize); free < size+reserve { //nolint:gosec,unconvert // types differ between systems; no disk is that large
		return fmt.Errorf("the delivery needs %s, and the disk has %s free, of which the agent needs %s: %w",
			mib(size), mib(free), mib(reserve), syscall.ENOSPC)
	}
	return nil
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// Retain removes every delivery whose id is not in keep, and the trees that no delivery needs.
func (s *Store) Retain(keep []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, err := s.records()
	if err != nil {
		return fmt.Errorf("retain: %w", err)
	}
	trees := map[string]bool{}
	for _, r := range records {
		if slices.Contains(keep, r.ID) {
			trees[r.Digest] = true
		} else if err := os.Remove(s.recordPath(r.ID)); err != nil {
			return fmt.Errorf("retain: %w", err)
		}
	}
	// After a power cut, no record may be without its tree.
	if err := s.syncDir(s.path(deliveriesDir)); err != nil {
		return fmt.Errorf("retain: %w", err)
	}
	return s.removeTreesBut(trees)
}

func (s *Store) removeTreesBut(keep map[string]bool) error {
	dirs, err := os.ReadDir(s.path(treesDir))
	if err != nil {
		return fmt.Errorf("retain: %w", err)
	}
	var all []error
	for _, d := range dirs {
		if keep[d.Name()] {
			continue
		}
		// A removal that is cut short must not leave half a tree under its digest.
		tmp := filepath.Join(s.path(incomingDir), "gone-"+d.Name())
		if err := os.Rename(s.tree(d.Name()), tmp); err != nil {
			all = append(all, fmt.Errorf("retain: %w", err))
			continue
		}
		all = append(all, os.RemoveAll(tmp))
	}
	return errors.Join(all...)
}
