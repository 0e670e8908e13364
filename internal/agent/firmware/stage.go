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
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/watchdog"
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
	Sync       statefile.Sync
	Watchdog   *watchdog.Watchdog // is told of progress; may be nil
}

// Stage is one node's staged firmware. Its methods may be called concurrently, by one process only.
type Stage struct {
	opt    Options
	damage error
	step   func(string) // called before each change, for tests that stop there

	mu     sync.Mutex
	ledger ledger
	ahead  map[string]claim // what is prepared for owners
	unsure bool             // a write failed, so the disk may have another ledger
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
	s := &Stage{opt: opt, step: func(string) {}, ahead: map[string]claim{}}
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
	sources, err := scan(files, s.opt.MaxFiles, s.opt.MaxBytes, s.opt.Watchdog)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ahead, owner)
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

// Prepare writes an owner's firmware where the kernel does not look, and leaves what the owner has
// staged as it is: an Add that follows finds the room taken. Its errors are those of Add. What is
// prepared goes with the process, or with the owner's next Add, Prepare or Remove, and stays at a
// Release.
func (s *Stage) Prepare(owner string, files fs.FS) error {
	sources, err := scan(files, s.opt.MaxFiles, s.opt.MaxBytes, s.opt.Watchdog)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.begin(owner, sources)
	if err != nil {
		return err
	}
	defer func() { _ = w.root.Close() }()
	s.ahead[owner] = claimOn(w.dir, w.todo)
	if err := s.prepare(w, files); err != nil {
		delete(s.ahead, owner)
		return errors.Join(err, s.settle())
	}
	return nil
}

// work is what one owner's firmware needs in one directory.
type work struct {
	base
	choice  Choice
	current string   // the kernel's search path
	todo    []source // that have to be written
}

// begin opens the directory for an owner's firmware, and finds what is in its way.
func (s *Stage) begin(owner string, sources []source) (work, error) {
	current, err := s.opt.SearchPath.FirmwarePath()
	if err != nil {
		return work{}, fmt.Errorf("firmware: read the kernel's search path: %w", err)
	}
	w := work{current: current, choice: Choose(current, s.opt.Dir, s.opt.BootID, s.ledger.Wrote)}
	if w.base, err = s.base(w.choice.Dir, w.choice.Dir == s.opt.Dir); err != nil {
		return work{}, &DirError{Dir: w.choice.Dir, Foreign: w.choice.Dir != s.opt.Dir, Err: err}
	}
	if w.todo, err = s.plan(w.base, owner, sources); err != nil {
		_ = w.root.Close() // nothing was written
		return work{}, err
	}
	return w, nil
}

func (s *Stage) add(owner string, files fs.FS, sources []source) error {
	w, err := s.begin(owner, sources)
	if err != nil {
		return err
	}
	defer func() { _ = w.root.Close() }()
	if err := s.prepare(w, files); err != nil {
		return err
	}
	next := s.ledger.claimed(owner, w.dir, sources)
	next.Wrote = w.choice.Wrote
	if err := s.save(next); err != nil {
		return err
	}
	for _, src := range w.todo {
		if err := w.place(src); err != nil {
			return s.unusable(w, err)
		}
	}
	if !w.choice.Set {
		return nil
	}
	return s.setPath(w.current, w.choice.Dir)
}

// unusable tells a directory that cannot be written from what else may go wrong in it.
func (s *Stage) unusable(w work, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return &DirError{Dir: w.dir, Foreign: w.dir != s.opt.Dir, Err: err}
	}
	return err
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

// prepare writes all contents where the kernel does not look. The ledger names the directories
// before anything is in them.
func (s *Stage) prepare(w work, files fs.FS) error {
	missing, err := w.missingDirs(w.todo)
	if err != nil {
		return err
	}
	noted := s.ledger.clone()
	noted.Dirs[w.dir] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.ledger.Dirs[w.dir], missing))))
	if err := s.save(noted); err != nil {
		return err
	}
	for _, src := range w.todo {
		if err := w.prepare(files, src); err != nil {
			return s.unusable(w, err)
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
	delete(s.ahead, owner)
	return s.drop(func(name string) bool { return name == owner })
}

// Release is Remove, but for what is prepared for the owner: that comes next.
func (s *Stage) Release(owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(func(name string) bool { return name == owner })
}

// Retain removes the firmware of all owners but those in keep, and files without an owner. It
// finishes the work of a process that was killed: call it once all owners of this node are known.
func (s *Stage) Retain(keep []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unneeded := func(name string) bool { return !slices.Contains(keep, name) }
	maps.DeleteFunc(s.ahead, func(owner string, _ claim) bool { return unneeded(owner) })
	return s.drop(unneeded)
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
		if next.Dirs[dir] = left; err == nil && len(left) == 0 && !next.uses(dir) && !(ledger{Claims: s.ahead}).uses(dir) {
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
	kept := ledger{Claims: s.ahead}
	left, err := b.sweep(func(t mark) bool { return l.wants(dir, t.path, t.digest) },
		func(t mark) bool { return kept.wants(dir, t.path, t.digest) }, l.Dirs[dir])
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
	err = errors.Join(writeLedger(state, l, s.opt.Sync, s.step), state.Close())
	if err == nil {
		s.ledger, s.unsure = l, false
	}
	return err
}
