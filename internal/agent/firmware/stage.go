// SPDX-License-Identifier: Apache-2.0

// Package firmware stages the firmware files of deliveries in a directory of the host where the
// kernel finds them. It never changes the host's own files. It may be killed after any step: a
// later call goes on from there.
package firmware

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/drover-project/drover/internal/agent/manifest"
)

// DefaultDir is where firmware is staged unless set otherwise: upstream's directory.
const DefaultDir = "/var/lib/firmware"

// maxSearchPath is the length of the kernel's buffer without its NUL
// (drivers/base/firmware_loader/main.c).
const maxSearchPath = 255

// Options of a Stage.
type Options struct {
	// Dir on the host to stage into, absolute; empty means DefaultDir. It is made if it is missing.
	// Its file system must have hard links.
	Dir        string
	HostRoot   string     // where the host's root directory is seen; empty means "/"
	StateDir   string     // of the ledger; it must exist
	BootID     string     // of this boot: what an earlier boot wrote into the search path is gone
	SearchPath SearchPath // the kernel's
	MaxFiles   int        // of an owner's firmware; 0 means a delivery's bound
	MaxBytes   int64      // likewise
	NoSync     bool       // skips fsync, for throw-away nodes
}

// Stage is one node's staged firmware. Its methods may be called concurrently, by one process only.
type Stage struct {
	opt    Options
	damage error
	step   func(string) // called before each change, for tests that stop there

	mu     sync.Mutex
	ledger ledger
	unsure bool // a write failed, so the disk may have another ledger
}

// Open reads the ledger and changes nothing in the staging directory, which may be missing. If the
// ledger is lost or damaged (see Damage), staged files are found on disk and stay until Retain is
// called. Directories that we made and the search path then stay as they are.
func Open(opt Options) (*Stage, error) {
	opt.Dir = path.Clean(cmp.Or(opt.Dir, DefaultDir))
	opt.HostRoot = cmp.Or(opt.HostRoot, "/")
	opt.MaxFiles = cmp.Or(opt.MaxFiles, manifest.MaxFiles)
	opt.MaxBytes = cmp.Or(opt.MaxBytes, manifest.DefaultMaxBytes)
	if err := checkDir(opt.Dir); err != nil {
		return nil, fmt.Errorf("firmware directory: %w", err)
	}
	if len(opt.Dir) > maxSearchPath {
		return nil, fmt.Errorf("firmware directory: the kernel takes at most %d bytes, %q has more", maxSearchPath, opt.Dir)
	}
	s := &Stage{opt: opt, step: func(string) {}}
	state, err := os.OpenRoot(opt.StateDir)
	if err != nil {
		return nil, fmt.Errorf("firmware: open the state directory: %w", err)
	}
	defer func() { _ = state.Close() }()
	s.ledger, err = readLedger(state)
	switch {
	case errors.Is(err, errDamaged):
		s.damage = err
	case err == nil:
		return s, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	s.ledger, err = s.found()
	s.damage = errors.Join(s.damage, err)
	return s, nil
}

// Damage is what was wrong with the ledger, or with marks that had to replace it; mostly nil.
func (s *Stage) Damage() error { return s.damage }

// found makes a ledger of what is in our directory and in the one that the kernel searches.
func (s *Stage) found() (ledger, error) {
	l := newLedger()
	var all []error
	dirs := []string{s.opt.Dir}
	// A kernel without firmware loading has no search path. Only Add needs one.
	if current, err := s.opt.SearchPath.FirmwarePath(); err == nil && checkDir(trim(current)) == nil {
		dirs = append(dirs, trim(current))
	}
	for _, dir := range slices.Compact(dirs) {
		b, err := s.base(dir, false)
		if err != nil {
			continue // Add says why, if it matters
		}
		files, some, err := b.staged()
		all = append(all, err, b.root.Close())
		if len(files) > 0 {
			l.Claims[dir] = claim{Dir: dir, Files: files}
		}
		if some {
			l.Dirs[dir] = nil
		}
	}
	return l, errors.Join(all...)
}

// Add stages an owner's firmware, the files of a delivery's firmware directory, and has the kernel
// look there. It replaces what only this owner had staged before, and restores files that somebody
// removed. On an error, the owner keeps what it had.
//
// Errors: *Conflict, *DirError, *manifest.Failure (no node can stage it); others may pass.
func (s *Stage) Add(owner string, files fs.FS) error {
	if owner == "" || nobody(owner) {
		return fmt.Errorf("firmware: %q is not an owner's name", owner)
	}
	sources, err := scan(files, s.opt.MaxFiles, s.opt.MaxBytes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(sources) == 0 {
		return s.drop(func(name string) bool { return name == owner })
	}
	before := s.ledger
	if err := s.add(owner, files, sources); err != nil {
		back := s.ledger.clone() // with the directories recorded since
		back.Claims, back.Wrote = before.Claims, before.Wrote
		if restored := s.save(back); restored != nil {
			return errors.Join(err, restored)
		}
		return errors.Join(err, s.settle())
	}
	// The owner has what it needs. The next Remove or Retain reports what could not be removed.
	_ = s.settle()
	return nil
}

func (s *Stage) add(owner string, files fs.FS, sources []source) error {
	current, err := s.opt.SearchPath.FirmwarePath()
	if err != nil {
		return fmt.Errorf("firmware: read the kernel's search path: %w", err)
	}
	choice := Choose(current, s.opt.Dir, s.opt.BootID, s.ledger.Wrote)
	b, err := s.base(choice.Dir, choice.Dir == s.opt.Dir)
	if err != nil {
		return &DirError{Dir: choice.Dir, Foreign: choice.Dir != s.opt.Dir, Err: err}
	}
	defer func() { _ = b.root.Close() }()
	todo, err := s.plan(b, owner, sources)
	if err != nil {
		return err
	}
	if err := s.stage(b, files, todo, s.ledger.claimed(owner, b.dir, sources), choice.Wrote); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			err = &DirError{Dir: choice.Dir, Foreign: choice.Dir != s.opt.Dir, Err: err}
		}
		return err
	}
	if !choice.Set {
		return nil
	}
	return s.setPath(current, choice.Dir)
}

// plan returns which sources have to be written.
func (s *Stage) plan(b base, owner string, sources []source) ([]source, error) {
	var todo []source
	for _, src := range sources {
		if rival := s.ledger.rival(owner, b.dir, src); rival != "" {
			return nil, &Conflict{Dir: b.dir, Path: src.path, Owner: rival}
		}
		now, err := b.look(src)
		switch {
		case err != nil:
			return nil, err
		case now.digest == src.digest: // ours already, or the host's
		case now.absent || now.ours:
			todo = append(todo, src)
		default:
			return nil, &Conflict{Dir: b.dir, Path: src.path, Owner: s.ledger.blocker(owner, b.dir, src.path), Found: now.what}
		}
	}
	return todo, nil
}

// stage writes all contents where the kernel does not look, then the ledger, then places each file.
func (s *Stage) stage(b base, files fs.FS, todo []source, next ledger, wrote *Wrote) error {
	missing, err := b.missingDirs(todo)
	if err != nil {
		return err
	}
	next.Dirs[b.dir] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.ledger.Dirs[b.dir], missing))))
	next.Wrote = wrote
	if len(todo) > 0 {
		// The ledger must name the directory before anything is in it.
		noted := s.ledger.clone()
		noted.Dirs[b.dir] = next.Dirs[b.dir]
		if err := s.save(noted); err != nil {
			return err
		}
	}
	for _, src := range todo {
		if err := b.prepare(files, src); err != nil {
			return err
		}
	}
	if err := s.save(next); err != nil {
		return err
	}
	for _, src := range todo {
		if err := b.place(src); err != nil {
			return err
		}
	}
	return nil
}

// setPath sets the kernel's search path, unless somebody changed it meanwhile.
func (s *Stage) setPath(current, dir string) error {
	now, err := s.opt.SearchPath.FirmwarePath()
	if err == nil && trim(now) != trim(current) {
		err = errChanged
	}
	if err == nil {
		s.step("point")
		err = s.opt.SearchPath.SetFirmwarePath(dir)
	}
	if err != nil {
		return fmt.Errorf("firmware: set the kernel's search path to %s: %w", dir, err)
	}
	return nil
}

// Remove removes an owner's firmware, as far as nobody else needs it. With the last file, it
// restores the kernel's search path. An unknown owner is no error.
func (s *Stage) Remove(owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(func(name string) bool { return name == owner })
}

// Retain removes the firmware of all owners but those in keep, and files without an owner. It
// finishes the work of a process that was killed: call it once all owners of this node are known.
func (s *Stage) Retain(keep []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(func(name string) bool { return !slices.Contains(keep, name) })
}

func (s *Stage) drop(unneeded func(owner string) bool) error {
	next := s.ledger.clone()
	maps.DeleteFunc(next.Claims, func(owner string, _ claim) bool { return unneeded(owner) })
	if err := s.save(next); err != nil {
		return err
	}
	return s.settle()
}

// settle makes the disk and the kernel's search path match the ledger.
func (s *Stage) settle() error {
	next := s.ledger.clone()
	var all []error
	for _, dir := range slices.Sorted(maps.Keys(next.Dirs)) {
		left, err := s.sweep(dir, next)
		all = append(all, err)
		if next.Dirs[dir] = left; err == nil && len(left) == 0 && !next.uses(dir) {
			delete(next.Dirs, dir)
		}
	}
	if len(next.Claims) == 0 && next.Wrote != nil {
		err := s.restorePath(*next.Wrote)
		if all = append(all, err); err == nil {
			next.Wrote = nil
		}
	}
	return errors.Join(append(all, s.save(next))...)
}

// sweep cleans one directory and returns what is left of the directories that we made there.
func (s *Stage) sweep(dir string, l ledger) ([]string, error) {
	b, err := s.base(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return l.Dirs[dir], &DirError{Dir: dir, Foreign: dir != s.opt.Dir, Err: err}
	}
	left, err := b.sweep(func(t mark) bool { return l.wants(dir, t.path, t.digest) }, l.Dirs[dir])
	slices.Sort(left)
	return left, errors.Join(err, b.root.Close())
}

// restorePath restores the kernel's search path, if it is still the one that we wrote.
func (s *Stage) restorePath(wrote Wrote) error {
	if wrote.Boot != s.opt.BootID {
		return nil
	}
	now, err := s.opt.SearchPath.FirmwarePath()
	if err == nil && trim(now) == wrote.Value {
		s.step("unpoint")
		err = s.opt.SearchPath.SetFirmwarePath(wrote.Previous)
	}
	if err != nil {
		return fmt.Errorf("firmware: restore the kernel's search path: %w", err)
	}
	return nil
}

// save makes the ledger current, on disk first.
func (s *Stage) save(l ledger) error {
	if !s.unsure && l.equal(s.ledger) {
		return nil
	}
	state, err := os.OpenRoot(s.opt.StateDir)
	if err != nil {
		return fmt.Errorf("firmware: open the state directory: %w", err)
	}
	s.unsure = true
	err = errors.Join(writeLedger(state, l, !s.opt.NoSync, s.step), state.Close())
	if err == nil {
		s.ledger, s.unsure = l, false
	}
	return err
}
