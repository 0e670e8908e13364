// SPDX-License-Identifier: Apache-2.0

// Package store keeps the trees that carriers delivered: by digest, verified, bounded.
//
// Layout of its directory (0700, the agent's own):
//
//	sha256/<digest>/…        a tree; the digest covers every path, size and content in it
//	deliveries/<id>.json     the digest of a delivery
//	damaged/…                what failed verification and is never used again
//	incoming/…               imports under way; emptied by New
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

const (
	treesDir      = "sha256"
	deliveriesDir = "deliveries"
	damagedDir    = "damaged"
	incomingDir   = "incoming"

	// DefaultMaxTotal is eight deliveries of the largest size.
	DefaultMaxTotal = 8 * manifest.DefaultMaxBytes
	// reserve stays free on the file system for what the agent writes before each load.
	reserve = 32 << 20

	keptDamaged = 2        // damaged things, for a post-mortem
	maxRecord   = 64 << 10 // bytes, far above the size of a delivery's record
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Options bound and tune a Store.
type Options struct {
	// PodsDir is the kubelet's pods directory, usually /var/lib/kubelet/pods, with carriers' outputs.
	PodsDir  string
	MaxFiles int
	MaxBytes int64          // per delivery; 0 means manifest.DefaultMaxBytes
	MaxTotal int64          // of the content of all deliveries, in bytes; 0 means DefaultMaxTotal
	Sync     statefile.Sync // with NoSync, a power cut may leave a damaged tree, which Open finds
	// Baked marks what is imported as part of the node's image: before any order.
	Baked bool
	Clock clock.PassiveClock
	// Watchdog is told of progress; may be nil.
	Watchdog *watchdog.Watchdog
}

// Store implements package agent's Store. Its methods may be called concurrently.
type Store struct {
	dir string
	opt Options
	log klog.Logger
	mu  sync.Mutex // serialises everything that renames or removes
}

type record struct {
	ID       string    `json:"id"`
	Digest   string    `json:"digest"`
	Kernel   string    `json:"kernel"`
	Imported time.Time `json:"imported"`
	Baked    bool      `json:"baked,omitempty"`
}

// New prepares dir, which it makes if it is missing, and forgets imports that were cut short. The
// store logs damage to ctx's logger.
func New(ctx context.Context, dir string, opt Options) (*Store, error) {
	opt.MaxFiles = cmp.Or(opt.MaxFiles, manifest.MaxFiles)
	opt.MaxBytes = cmp.Or(opt.MaxBytes, manifest.DefaultMaxBytes)
	opt.MaxTotal = cmp.Or(opt.MaxTotal, DefaultMaxTotal)
	opt.Clock = cmp.Or[clock.PassiveClock](opt.Clock, clock.RealClock{})
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{dir: abs, opt: opt, log: klog.FromContext(ctx).WithName("store")}
	for _, d := range []string{"", treesDir, deliveriesDir, damagedDir, incomingDir} {
		if err := statefile.MakeDir(s.path(d)); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	// The directory stays: a full disk may have no room for it.
	cut, err := os.ReadDir(s.path(incomingDir))
	for _, d := range cut {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.path(incomingDir), d.Name())))
	}
	if err != nil {
		return nil, fmt.Errorf("store: clear imports cut short: %w", err)
	}
	return s, nil
}

// Open reads a delivery, verifies it against its digest and returns its tree, with
// lib/modules/<kernel> and firmware. Files are *os.File. The error is fs.ErrNotExist if the id is
// not held, and also a *DamagedError if its tree was damaged: then it is no longer held.
func (s *Store) Open(id string) (fs.FS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok, err := s.get(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("delivery %s is not in the store: %w", id, fs.ErrNotExist)
	}
	if err := s.verify(context.Background(), r.Digest); err != nil {
		return nil, fmt.Errorf("open delivery %s: %w", id, err)
	}
	return os.DirFS(s.tree(r.Digest)), nil
}

// Held maps the ids of all deliveries in the store to their digests. It does not read the trees.
func (s *Store) Held() (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	held := make(map[string]string, len(records))
	for _, r := range records {
		held[r.ID] = r.Digest
	}
	return held, nil
}

// Baked maps the ids of those deliveries that came with the node's image to their digests.
func (s *Store) Baked() (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	baked := map[string]string{}
	for _, r := range records {
		if r.Baked {
			baked[r.ID] = r.Digest
		}
	}
	return baked, nil
}

// records returns all records that are not damaged.
func (s *Store) records() ([]record, error) {
	files, err := os.ReadDir(s.path(deliveriesDir))
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	var all []record
	for _, f := range files {
		switch r, ok, err := s.get(idOf(f)); {
		case err != nil:
			return nil, err
		case ok:
			all = append(all, r)
		}
	}
	return all, nil
}

// get reads a record. A damaged one counts as absent and is moved aside, so that the delivery is
// made again. An error says nothing about the record.
func (s *Store) get(id string) (record, bool, error) {
	if !idPattern.MatchString(id) {
		return record{}, false, nil
	}
	r, err := s.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err == nil {
		var info fs.FileInfo
		info, err = os.Lstat(s.tree(r.Digest))
		switch {
		case err == nil && info.IsDir():
			return r, true, nil
		case err == nil, errors.Is(err, fs.ErrNotExist):
			err = errors.New("its tree is missing")
		}
	}
	if statefile.Passing(err) {
		return record{}, false, fmt.Errorf("look at delivery %s: %w", id, err)
	}
	s.log.Error(err, "Delivery record is damaged, moving it aside", "delivery", id)
	if err := s.setAside(s.recordPath(id)); err != nil {
		s.log.Error(err, "Cannot move the damaged delivery record aside", "delivery", id)
	}
	return record{}, false, nil
}

func (s *Store) read(id string) (record, error) {
	root, err := os.OpenRoot(s.path(deliveriesDir))
	if err != nil {
		return record{}, fmt.Errorf("read delivery %s: %w", id, err)
	}
	defer func() { _ = root.Close() }() // only read from
	data, err := nofollow.ReadFile(root, id+".json", maxRecord)
	if err != nil {
		return record{}, fmt.Errorf("read delivery %s: %w", id, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("decode delivery %s: %w", id, err)
	}
	if r.ID != id || !manifest.ValidSum(r.Digest) {
		return record{}, fmt.Errorf("delivery %s: its record does not match its name", id)
	}
	return r, nil
}

func (s *Store) write(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode delivery %s: %w", r.ID, err)
	}
	if err := statefile.Replace(s.path(deliveriesDir), r.ID+".json", data, 0o600, s.opt.Sync); err != nil {
		return fmt.Errorf("record delivery %s: %w", r.ID, err)
	}
	return nil
}

func (s *Store) sync(f *os.File) error {
	if err := s.opt.Sync.File(f); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

func (s *Store) syncDir(dir string) error { return s.opt.Sync.Dir(dir) }

func (s *Store) tree(digest string) string { return filepath.Join(s.path(treesDir), digest) }

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) recordPath(id string) string { return filepath.Join(s.path(deliveriesDir), id+".json") }

func idOf(f fs.DirEntry) string { return strings.TrimSuffix(f.Name(), ".json") }

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
		sum, n, err := manifest.Sum(s.opt.Watchdog.Reader(f))
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
