// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

// source is one file of a delivery.
type source struct {
	path   string
	digest string // SHA-256, lower-case hex
	size   int64
}

// scan lists and hashes a delivery's firmware, sorted by path. It fails on what may not be staged.
func scan(files fs.FS, maxFiles int, maxBytes int64, dog *watchdog.Watchdog) ([]source, error) {
	top, err := fs.Lstat(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read firmware of the delivery: %w", err)
	}
	if !top.IsDir() {
		return nil, manifest.Failed(manifest.ReasonDeliveryRefused, "firmware: %v", &nofollow.KindError{Path: ".", Mode: top.Mode()})
	}
	var found []source
	left := maxBytes
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read firmware of the delivery: %w", err)
		}
		if entry.IsDir() {
			return nil
		}
		if err := acceptable(name); err != nil {
			return err
		}
		if len(found) == maxFiles {
			return manifest.Failed(manifest.ReasonImageTooLarge, "firmware: more than %d files", maxFiles)
		}
		s, err := measure(files, name, left, dog)
		if err != nil {
			return err
		}
		if left -= s.size; left < 0 {
			return manifest.Failed(manifest.ReasonImageTooLarge, "firmware: more than %d bytes (at %s)", maxBytes, name)
		}
		found = append(found, s)
		return nil
	})
	return found, err //nolint:wrapcheck // made by the function above
}

// acceptable refuses names that the staging directory cannot have.
func acceptable(name string) error {
	if err := manifest.ValidPath(name); err != nil {
		return manifest.Failed(manifest.ReasonDeliveryRefused, "firmware: %v", err)
	}
	if top, _, _ := strings.Cut(name, "/"); top == marksDir {
		return manifest.Failed(manifest.ReasonDeliveryRefused, "firmware: the agent itself uses the name %s", marksDir)
	}
	return nil
}

// measure hashes a file, of one larger than limit only as much as shows that it is.
func measure(files fs.FS, name string, limit int64, dog *watchdog.Watchdog) (source, error) {
	f, err := open(files, name)
	if err != nil {
		return source{}, err
	}
	defer func() { _ = f.Close() }()
	digest, n, err := manifest.Sum(io.LimitReader(dog.Reader(f), limit+1))
	if err != nil {
		return source{}, fmt.Errorf("read firmware %s of the delivery: %w", name, err)
	}
	return source{path: name, digest: digest, size: n}, nil
}

// open opens a regular file of a delivery without following a link.
func open(files fs.FS, name string) (fs.File, error) {
	seen, err := fs.Lstat(files, name)
	if err != nil {
		return nil, fmt.Errorf("look at firmware %s of the delivery: %w", name, err)
	}
	if !seen.Mode().IsRegular() {
		return nil, manifest.Failed(manifest.ReasonDeliveryRefused, "firmware: %v", &nofollow.KindError{Path: name, Mode: seen.Mode()})
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open firmware %s of the delivery: %w", name, err)
	}
	opened, err := f.Stat()
	if err != nil {
		_ = f.Close() // only read from
		return nil, fmt.Errorf("look at firmware %s of the delivery: %w", name, err)
	}
	if _, real := f.(*os.File); real && !os.SameFile(seen, opened) {
		_ = f.Close() // only read from
		return nil, manifest.Failed(manifest.ReasonDeliveryRefused, "firmware: %v", &nofollow.KindError{Path: name, Swapped: true})
	}
	return f, nil
}
