// SPDX-License-Identifier: Apache-2.0

package imagefs_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-project/drover/internal/shared/imagefs"
)

// FuzzResolve: links lead to where the kernel says for a process whose root is the image's, and
// never outside. Each line is a link: its path, a blank and its target.
func FuzzResolve(f *testing.F) {
	f.Add("a b\nb /c\nc ..", "a")
	f.Add("d/x ../../../secret\na d\nb a/x", "b")
	f.Add("a /a", "a/b")
	f.Add("d/up ..\ne d/up/d/up", "e/file")
	f.Add("a file/x\nb file/.", "b")
	for n := range uint64(300) {
		links, name := randomLinks(rand.New(rand.NewPCG(n, 0)))
		f.Add(links, name)
	}
	f.Fuzz(func(t *testing.T, links, name string) {
		dir := t.TempDir()
		for _, file := range []string{"image/file", "image/d/file", "secret"} {
			write(t, filepath.Join(dir, file), []byte("x"))
		}
		root, err := os.OpenRoot(filepath.Join(dir, "image"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		for line := range strings.Lines(links) {
			if path, target, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				_ = root.Symlink(target, path) // one that cannot be made is not there
			}
		}
		at, err := imagefs.New(root.FS()).Resolve(name)
		want, known := chrooted(t, root, name)
		var link *imagefs.LinkError
		switch {
		case err != nil && !errors.As(err, &link) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid):
			t.Errorf("%q: %v", name, err)
		case err == nil && !without(root, at):
			t.Errorf("%q leads to %q, which has links", name, at)
		case known && err == nil != (want != nil):
			t.Errorf("%q leads to %q (%v), with the kernel to %v", name, at, err, want)
		case known && err == nil:
			if info, err := root.Lstat(at); err != nil || !os.SameFile(info, want) {
				t.Errorf("%q leads to %q (%v), with the kernel elsewhere", name, at, err)
			}
		}
	})
}

// randomLinks are links between a few places, and a path among them.
func randomLinks(r *rand.Rand) (links, name string) {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	path := func() string {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, pick("a", "b", "c", "d", "e", "file", "..", ".", "", "/"))
		}
		return strings.Join(parts, "/")
	}
	var lines []string
	for range 6 {
		lines = append(lines, pick("a", "b", "c", "d/a", "d/b", "d/c")+" "+path())
	}
	return strings.Join(lines, "\n"), filepath.Clean("./" + strings.ReplaceAll(path(), "..", "a"))
}

// without tells whether a path is there, and no part of it is a link.
func without(root *os.Root, name string) bool {
	for ; ; name = filepath.Dir(name) {
		info, err := root.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return false
		}
		if name == "." {
			return true
		}
	}
}

// chrooted asks the kernel what a path leads to for a process whose root is this one; nil if to
// nothing. It is not known where the kernel cannot say it (no openat2, names that are no paths).
func chrooted(t *testing.T, root *os.Root, name string) (info os.FileInfo, known bool) {
	t.Helper()
	dir, err := root.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	switch {
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG):
		return nil, false
	case err != nil:
		return nil, true
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	if info, err = file.Stat(); err != nil {
		t.Fatal(err)
	}
	return info, true
}
