// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

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
