// SPDX-License-Identifier: Apache-2.0

// Package artifacts makes everything a virtual Kubernetes node consists of:
// kernels and their headers from Debian's packages, containerd, runc, CNI
// plugins and kubelet compiled from pinned Go modules, a root image and initial
// RAM disks. All of it is kept below one cache folder, under names that follow
// from the inputs, so that a second run finds it ready.
package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// Cache is a folder of finished artifacts. Several processes may use one at
// the same time.
type Cache struct {
	dir  string
	repo string
	// AllModules has nodes hold all modules of their kernel's package, as a machine does.
	AllModules bool
}

// Open returns the cache in dir. With an empty dir it is $DROVER_CACHE, or
// .cache/vm in the repository. The repository is found from the working
// folder, which must be inside of it.
func Open(dir string) (*Cache, error) {
	repo, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = os.Getenv("DROVER_CACHE")
	}
	if dir == "" {
		dir = filepath.Join(repo, ".cache", "vm")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("make the cache folder absolute: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	return &Cache{dir: dir, repo: repo}, nil
}

// Repository is the root folder of the checkout this cache works for.
func (c *Cache) Repository() string { return c.repo }

// Entry returns the folder of the artifact with this name and these inputs. If
// it is not there, build is called with an empty folder to fill; the folder
// gets its final name only when build succeeded. A second process that wants
// the same entry waits for the first.
func (c *Cache) Entry(ctx context.Context, name string, inputs []string, build func(ctx context.Context, dir string) error) (string,
	error) {
	final := filepath.Join(c.dir, name+"-"+digest(inputs...))
	if exists(final) {
		return final, markUsed(final)
	}
	unlock, err := lock(final + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(final) {
		return final, nil
	}
	work := final + ".partial"
	if err := os.RemoveAll(work); err != nil {
		return "", fmt.Errorf("remove what an interrupted run left: %w", err)
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", fmt.Errorf("make a work folder: %w", err)
	}
	log := klog.FromContext(ctx).WithValues("artifact", name)
	log.Info("Making artifact")
	start := time.Now()
	if err := build(ctx, work); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	if err := os.Rename(work, final); err != nil {
		return "", fmt.Errorf("name the finished artifact: %w", err)
	}
	// What was unpacked may have brought a time of its own.
	if err := markUsed(final); err != nil {
		return "", err
	}
	log.Info("Made artifact", "seconds", time.Since(start).Round(100*time.Millisecond).Seconds())
	return final, c.prune(name, filepath.Base(final))
}

// keepUnused is how long an entry that nobody asks for is kept after another
// of its name took its place. No run is as long.
const keepUnused = 24 * time.Hour

// markUsed sets the time that prune goes by.
func markUsed(entry string) error {
	now := time.Now()
	if err := os.Chtimes(entry, now, now); err != nil {
		return fmt.Errorf("mark the artifact as used: %w", err)
	}
	return nil
}

// prune removes entries of this name that were made from other inputs and have
// not been used for long. Their lock files stay: they are empty.
func (c *Cache) prune(name, current string) error {
	others, err := filepath.Glob(filepath.Join(c.dir, name+"-"+strings.Repeat("[0-9a-f]", digestLength)))
	if err != nil {
		return fmt.Errorf("list artifacts: %w", err)
	}
	for _, other := range others {
		info, err := os.Stat(other)
		if err != nil || filepath.Base(other) == current || time.Since(info.ModTime()) < keepUnused {
			continue
		}
		if err := os.RemoveAll(other); err != nil {
			return fmt.Errorf("remove an unused artifact: %w", err)
		}
	}
	return nil
}

// lock takes an exclusive lock on a file; the lock also ends with the process.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	// Closing releases the lock; nothing was written that could be lost.
	return func() { _ = file.Close() }, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// digestLength is the number of digits that tell entries apart.
const digestLength = 16

// digest is a short name for a list of strings; the parts cannot run into each
// other.
func digest(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(hash.Sum(nil))[:digestLength]
}

// Digest is the digest of files' names and contents; a folder stands for
// all files below it.
func Digest(paths ...string) (string, error) {
	var parts []string
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			parts = append(parts, name, string(content))
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("read %s: %w", root, err)
		}
	}
	return digest(parts...), nil
}

// repositoryRoot walks up from the working folder to the folder that holds the
// repository's go.mod.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working folder: %w", err)
	}
	for {
		if exists(filepath.Join(dir, "go.mod")) && exists(filepath.Join(dir, "tools", "vmnode")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the working folder is not inside the repository")
		}
		dir = parent
	}
}
