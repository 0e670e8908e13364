// SPDX-License-Identifier: Apache-2.0

package nofollow_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/drover-project/drover/internal/agent/nofollow"
)

// Somebody swaps a file for a link (and a directory for a link) as fast as possible while we read.
// Whatever we get to read must be the file's own content, never what the link leads to.
func TestSwapsAreNeverFollowed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("root/sub/own", "own")
	write("root/hidden/other", "other")
	write("root/hidden/own", "other")
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() { swap(stop, dir) })
	defer func() { close(stop); swapping.Wait() }()

	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	read, refusedCount := 0, 0
	// On a busy machine the swapping may begin late.
	for i := 0; i < 3000 || (read == 0 || refusedCount == 0) && t.Context().Err() == nil && i < 10_000_000; i++ {
		content, err := readOwn(root)
		var odd *nofollow.KindError
		switch {
		case err == nil && content == "own":
			read++
		case errors.As(err, &odd):
			refusedCount++
		case errors.Is(err, os.ErrNotExist):
		default:
			t.Fatalf("read %q, %v", content, err)
		}
	}
	t.Logf("read %d, refused %d", read, refusedCount)
	if read == 0 || refusedCount == 0 {
		t.Errorf("read %d, refused %d: the race was not run", read, refusedCount)
	}
}

func readOwn(root *os.Root) (string, error) {
	sub, err := nofollow.OpenDir(root, "sub")
	if err != nil {
		return "", err
	}
	defer func() { _ = sub.Close() }()
	f, err := nofollow.OpenFile(sub, "own")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	return string(data), err
}

// swap alternates, until stop is closed, root/sub and root/sub/own between themselves and links.
func swap(stop chan struct{}, dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	steps := []func() error{
		func() error { return os.Symlink("../hidden/other", in("link")) },
		func() error { return os.Rename(in("root/sub/own"), in("kept")) },
		func() error { return os.Rename(in("link"), in("root/sub/own")) },
		func() error { return os.Rename(in("kept"), in("root/sub/own")) },
		func() error { return os.Symlink("hidden", in("link")) },
		func() error { return os.Rename(in("root/sub"), in("root/aside")) },
		func() error { return os.Rename(in("link"), in("root/sub")) },
		func() error { return os.Remove(in("root/sub")) },
		func() error { return os.Rename(in("root/aside"), in("root/sub")) },
	}
	for {
		for _, step := range steps {
			select {
			case <-stop:
				return
			default:
			}
			if err := step(); err != nil {
				return // the test sees that nothing is swapped any more
			}
		}
	}
}
