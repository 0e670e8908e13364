// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/nofollow"
)

// ErrNotReady says that the carrier's output is not complete yet. It is fs.ErrNotExist, too.
var ErrNotReady = fmt.Errorf("the carrier's output is not complete yet: %w", fs.ErrNotExist)

// refused is the error for output that is not as its manifest says, or never acceptable.
func refused(format string, args ...any) error {
	return manifest.Failed(manifest.ReasonDeliveryRefused, "carrier output: "+format, args...)
}

func tooLarge(format string, args ...any) error {
	return manifest.Failed(manifest.ReasonImageTooLarge, format, args...)
}

var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// OutputDir is a carrier's output volume below the kubelet's pods directory. The UID must be a UUID
// in its usual form, so that it cannot lead anywhere else.
func OutputDir(uid types.UID) (string, error) {
	if !uidPattern.MatchString(string(uid)) {
		return "", fmt.Errorf("carrier UID %q is not a UUID", string(uid))
	}
	return string(uid) + "/volumes/kubernetes.io~empty-dir/out", nil
}

// Import copies the output of the carrier pod with that UID into the store and returns the digest
// of its tree. Nothing of a failed import stays.
//
// Errors: fs.ErrNotExist, not complete yet; *manifest.Failure, the export's, or DeliveryRefused if
// the output is not as its manifest says; syscall.ENOSPC, it does not fit now.
func (s *Store) Import(ctx context.Context, id string, carrier types.UID) (string, error) {
	if !idPattern.MatchString(id) {
		return "", fmt.Errorf("delivery id %q is not valid", id)
	}
	if digest, ok, err := s.held(id); ok || err != nil {
		return digest, err
	}
	out, err := s.openOutput(carrier)
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }()
	m, err := readManifest(out)
	if err != nil {
		return "", err
	}
	// First: for what is refused anyway, no room is made.
	if err := s.bounded(m); err != nil {
		return "", err
	}
	if err := s.makeRoom(m); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	tmp, err := os.MkdirTemp(s.path(incomingDir), "tree-")
	if err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // New removes what stays
	if err := s.copyTree(ctx, out, m, tmp); err != nil {
		return "", err
	}
	return s.commit(ctx, id, m, tmp)
}

// Delivered reports whether an import of the carrier's output would find more than that it is not
// complete yet. It costs less than an import.
func (s *Store) Delivered(carrier types.UID) bool {
	out, err := s.openOutput(carrier)
	if err == nil {
		defer func() { _ = out.Close() }()
		_, err = readManifest(out)
	}
	return !errors.Is(err, ErrNotReady)
}

func (s *Store) held(id string) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok, err := s.get(id)
	return r.Digest, ok, err
}

func (s *Store) openOutput(carrier types.UID) (*os.Root, error) {
	rel, err := OutputDir(carrier)
	if err != nil {
		return nil, err
	}
	pods, err := os.OpenRoot(s.opt.PodsDir)
	if err != nil {
		return nil, fmt.Errorf("open the kubelet's pods directory: %v", err) //nolint:errorlint // its absence must not read as "not ready yet"
	}
	defer func() { _ = pods.Close() }()
	out, err := nofollow.OpenDir(pods, rel)
	return out, classify(rel, err)
}

// readManifest returns the validated manifest, or ErrNotReady, or the export's own failure.
func readManifest(out *os.Root) (manifest.Manifest, error) {
	data, err := readSmall(out, manifest.File)
	if err == nil {
		m, err := manifest.Parse(data)
		if err != nil {
			return manifest.Manifest{}, refused("%v", err)
		}
		return m, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return manifest.Manifest{}, err
	}
	data, err = readSmall(out, manifest.ErrorFile)
	if err != nil {
		return manifest.Manifest{}, err
	}
	failure, err := manifest.ParseFailure(data)
	if err != nil {
		return manifest.Manifest{}, refused("%v", err)
	}
	return manifest.Manifest{}, failure
}

func readSmall(root *os.Root, name string) ([]byte, error) {
	data, err := nofollow.ReadFile(root, name, manifest.MaxEncodedBytes+1)
	if err != nil {
		return nil, classify(name, err)
	}
	if int64(len(data)) > manifest.MaxEncodedBytes {
		return nil, refused("%s is larger than %d bytes", name, manifest.MaxEncodedBytes)
	}
	return data, nil
}

// classify turns an error of opening a path into this package's.
func classify(name string, err error) error {
	var odd *nofollow.KindError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotReady
	case errors.As(err, &odd):
		return refused("%v", odd)
	default:
		return fmt.Errorf("open %s: %w", name, err)
	}
}

// bounded refuses a delivery by what its manifest says.
func (s *Store) bounded(m manifest.Manifest) error {
	if len(m.Files) > s.opt.MaxFiles {
		return tooLarge("the delivery has %d files, more than %d", len(m.Files), s.opt.MaxFiles)
	}
	var total int64
	for _, e := range m.Files {
		if total += e.Size; total > s.opt.MaxBytes || e.Size > s.opt.MaxBytes {
			return tooLarge("the delivery has more than %d bytes", s.opt.MaxBytes)
		}
	}
	return nil
}

// copyTree copies out/tree to dst and compares every file with the manifest.
func (s *Store) copyTree(ctx context.Context, out *os.Root, m manifest.Manifest, dst string) error {
	want := make(map[string]manifest.Entry, len(m.Files))
	for _, e := range m.Files {
		want[e.Path] = e
	}
	tree, err := nofollow.OpenDir(out, manifest.TreeDir)
	if errors.Is(err, fs.ErrNotExist) && len(want) > 0 {
		return refused("%s is missing, but there is a manifest", manifest.TreeDir)
	}
	if err != nil {
		return classify(manifest.TreeDir, err)
	}
	defer func() { _ = tree.Close() }()
	limits := nofollow.Limits{Entries: 2*s.opt.MaxFiles + 1, Depth: manifest.MaxDepth}
	err = nofollow.Walk(ctx, tree, limits, func(name string, f *os.File) error {
		e, listed := want[name]
		if !listed {
			return refused("%s is not in the manifest", name)
		}
		delete(want, name)
		return s.copyFile(f, e, filepath.Join(dst, filepath.FromSlash(name)))
	})
	if err != nil {
		return refuse(err)
	}
	for name := range want {
		return refused("%s is in the manifest, but missing", name)
	}
	return s.syncDirs(dst)
}

func (s *Store) syncDirs(top string) error {
	err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return s.syncDir(name)
	})
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return nil
}

// refuse makes the walk's findings refusals, and passes other errors on.
func refuse(err error) error {
	var odd *nofollow.KindError
	var many *nofollow.LimitError
	switch {
	case errors.As(err, &odd):
		return refused("%v", odd)
	case errors.As(err, &many):
		return refused("%s: %v", many.Path, many)
	case errors.Is(err, fs.ErrNotExist):
		// The carrier was deleted meanwhile. Another one comes.
		return fmt.Errorf("%w (it vanished while it was read)", ErrNotReady)
	}
	return err
}

// copyFile copies f if its size and hash are as the manifest says.
func (s *Store) copyFile(f *os.File, e manifest.Entry, dst string) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return fmt.Errorf("import %s: %w", e.Path, err)
	}
	to, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("import %s: %w", e.Path, err)
	}
	sum, n, err := manifest.Sum(io.TeeReader(io.LimitReader(s.opt.Watchdog.Reader(f), e.Size+1), to))
	if err = errors.Join(err, s.sync(to), to.Close()); err != nil {
		return fmt.Errorf("import %s: %w", e.Path, err)
	}
	if n != e.Size {
		return refused("%s does not have the %d bytes that the manifest says", e.Path, e.Size)
	}
	if sum != e.SHA256 {
		return refused("%s does not have the sha256 that the manifest says", e.Path)
	}
	return nil
}

// commit moves the copied tree to its digest's place and records the delivery.
func (s *Store) commit(ctx context.Context, id string, m manifest.Manifest, tmp string) (string, error) {
	digest := digestOf(m.Files)
	s.mu.Lock()
	defer s.mu.Unlock()
	place := s.tree(digest)
	var damage error
	if _, err := os.Lstat(place); err == nil {
		// Another delivery has the same content: they share it unless it is damaged.
		damage = s.verify(ctx, digest)
		if damage != nil && !errors.As(damage, new(*DamagedError)) {
			return "", damage
		}
	}
	switch _, err := os.Lstat(place); {
	case errors.Is(err, fs.ErrNotExist):
		if damage != nil {
			s.log.Error(damage, "Replacing a damaged tree by a new delivery", "delivery", id)
		}
		if err := os.Rename(tmp, place); err != nil {
			return "", fmt.Errorf("import: %w", err)
		}
		if err := s.syncDir(s.path(treesDir)); err != nil {
			return "", fmt.Errorf("import: %w", err)
		}
	case damage != nil:
		return "", fmt.Errorf("import: a damaged tree is in the way: %v", damage) //nolint:errorlint // it must not read as "not ready yet"
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	return digest, s.write(record{ID: id, Digest: digest, Kernel: m.Kernel, Imported: s.opt.Clock.Now().UTC(), Baked: s.opt.Baked})
}

// digestOf covers path, size and content of every file; entries are sorted by path.
func digestOf(entries []manifest.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s\x00%d\x00%s\n", e.Path, e.Size, e.SHA256)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}
