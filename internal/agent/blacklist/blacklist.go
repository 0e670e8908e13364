// SPDX-License-Identifier: Apache-2.0

// Package blacklist keeps the host from loading modules by itself: one file per Module in the
// host's modprobe.d, which udev heeds when it loads by alias. A module that another one needs, or
// that somebody asks for by name, is loaded all the same.
//
// Files are replaced whole. Drover's are known by name and first line; no others are changed.
package blacklist

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	prefix, suffix = "drover-", ".conf"
	unfinished     = ".new" // ends the name of a file that is being written: modprobe reads only .conf
	header         = "# Drover (drover.dev) wrote this file and removes it when the Module leaves this node. Module: "
	maxSize        = 64 << 10 // of a file, in bytes; ours are smaller
)

var (
	// A namespace has no dots, so namespace.name is unambiguous.
	namespace = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	name      = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,180}[a-z0-9])?$`)
	module    = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)
)

// Files are Drover's files in one modprobe.d.
type Files struct {
	dir  string
	step func() // called before each change of the directory, for tests that stop there
}

// New keeps files in dir, the host's /etc/modprobe.d. Only Put needs it to exist.
func New(dir string) *Files { return &Files{dir: dir, step: func() {}} }

// Put makes the file of an owner (a Module's namespace/name) list exactly these modules.
func (f *Files) Put(owner string, modules []string) error {
	file, err := fileOf(owner)
	if err != nil {
		return err
	}
	content, err := contentOf(owner, modules)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return fmt.Errorf("blacklist: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	have, ours, err := read(root, file)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !ours:
		return fmt.Errorf("blacklist: %s exists in modprobe.d and is not Drover's: remove or rename it", file)
	case err == nil && bytes.Equal(have, content):
		return nil
	}
	return f.replace(root, file, content)
}

// Retain removes the files of all owners but these, and files that were not finished.
func (f *Files) Retain(keep []string) error {
	root, err := os.OpenRoot(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("blacklist: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("blacklist: %w", err)
	}
	var failed []error
	for _, entry := range entries {
		file := entry.Name()
		whole := strings.TrimSuffix(file, unfinished)
		if !strings.HasPrefix(file, prefix) || !strings.HasSuffix(whole, suffix) {
			continue
		}
		kept := whole == file && slices.ContainsFunc(keep, func(owner string) bool {
			mine, err := fileOf(owner)
			return err == nil && mine == file
		})
		if _, ours, err := read(root, file); kept || err != nil || !ours {
			continue
		}
		f.step()
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("blacklist: %w", err))
		}
	}
	return errors.Join(failed...)
}

func (f *Files) replace(root *os.Root, file string, content []byte) error {
	f.step()
	if err := root.Remove(file + unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("blacklist: %w", err)
	}
	f.step()
	out, err := root.OpenFile(file+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("blacklist: %w", err)
	}
	// In one write: an unfinished file has our first line.
	_, err = out.Write(content)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("blacklist: write %s: %w", file, err)
	}
	f.step()
	if err := root.Rename(file+unfinished, file); err != nil {
		return fmt.Errorf("blacklist: %w", err)
	}
	if err := (statefile.Disk{Root: root}).Sync(); err != nil {
		return fmt.Errorf("blacklist: sync the directory: %w", err)
	}
	return nil
}

// read returns a file's content and whether it is Drover's. Only a regular file can be.
func read(root *os.Root, file string) (content []byte, ours bool, err error) {
	content, err = nofollow.ReadFile(root, file, maxSize)
	if _, odd := errors.AsType[*nofollow.KindError](err); odd {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("blacklist: %w", err)
	}
	return content, bytes.HasPrefix(content, []byte(header)), nil
}

func fileOf(owner string) (string, error) {
	ns, n, ok := strings.Cut(owner, "/")
	if !ok || !namespace.MatchString(ns) || !name.MatchString(n) {
		return "", fmt.Errorf("blacklist: %q is not a Module's namespace/name", owner)
	}
	return prefix + ns + "." + n + suffix, nil
}

func contentOf(owner string, modules []string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s\n", header, owner)
	for _, m := range slices.Compact(slices.Sorted(slices.Values(modules))) {
		if !module.MatchString(m) {
			return nil, fmt.Errorf("blacklist: %q is not a module's name", m)
		}
		fmt.Fprintf(&b, "blacklist %s\n", m)
	}
	return b.Bytes(), nil
}
