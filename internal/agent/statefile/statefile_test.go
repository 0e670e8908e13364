// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWhatIsNotBelieved: given what somebody made of a good file, it is moved aside, and nothing
// that it leads to is touched.
func TestWhatIsNotBelieved(t *testing.T) {
	rewrite := func(change func([]byte) []byte) func(string) error {
		return func(name string) error {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, change(data), 0o600)
		}
	}
	instead := func(of func(name string) error) func(string) error {
		return func(name string) error { return errors.Join(os.Remove(name), of(name)) }
	}
	type damage struct {
		given func(name string) error
		says  string
	}
	cases := map[string]damage{
		"empty":             {rewrite(func([]byte) []byte { return nil }), "decode"},
		"cut off":           {rewrite(func(b []byte) []byte { return b[:len(b)/2] }), "decode"},
		"no JSON":           {rewrite(func([]byte) []byte { return []byte("\x00\x00\x00") }), "decode"},
		"other words":       {rewrite(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("good"), []byte("evil")) }), "digest"},
		"no digest":         {rewrite(func([]byte) []byte { return []byte(`{"schema":1,"content":"good"}`) }), "digest"},
		"more than we know": {rewrite(func([]byte) []byte { return []byte(`{"schema":1,"words":"good"}`) }), "unknown field"},
		"of another schema": {rewrite(func(b []byte) []byte { return bytes.Replace(b, []byte(`"schema":1`), []byte(`"schema":2`), 1) }),
			"schema is 2"},
		"far too large":       {func(name string) error { return os.Truncate(name, maxSize+1) }, "larger"},
		"others may write it": {func(name string) error { return os.Chmod(name, 0o622) }, "others may write"},
		"a link": {instead(func(name string) error { return os.Symlink(filepath.Join(filepath.Dir(name), "target"), name) }),
			"symbolic link"},
		"a link to nothing": {instead(func(name string) error { return os.Symlink("/nowhere/at/all", name) }), "symbolic link"},
		"a pipe":            {instead(func(name string) error { return syscall.Mkfifo(name, 0o600) }), "neither a regular file"},
		"a directory":       {instead(func(name string) error { return os.MkdirAll(filepath.Join(name, "in", "it"), 0o700) }), "directory"},
		"with an older one's": {func(name string) error {
			return errors.Join(os.MkdirAll(name+asideSuffix+"/x", 0o700), os.Truncate(name, 3))
		}, "decode"},
		"with a new one's dir": {func(name string) error {
			return errors.Join(os.MkdirAll(filepath.Join(filepath.Dir(name), freshName("f"), "x"), 0o700), os.Truncate(name, 3))
		}, "decode"},
	}
	if os.Geteuid() == 0 { // others cannot give files away: see TestFilesOfOthersAreNotTrusted
		cases["of another user"] = damage{func(name string) error { return os.Chown(name, 12345, 12345) }, "user 12345"}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			target := filepath.Join(dir, "target")
			if err := os.WriteFile(target, []byte("the target's"), 0o600); err != nil {
				t.Fatal(err)
			}
			put(t, dir, "good")
			if err := c.given(filepath.Join(dir, "f")); err != nil {
				t.Fatal(err)
			}
			got := "untouched"
			_, err := Read(dir, "f", 1, &got)
			var untrusted *UntrustedError
			if !errors.As(err, &untrusted) || untrusted.Kept != nil || !strings.Contains(err.Error(), c.says) || got != "untouched" {
				t.Fatalf("read %q, %v", got, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "f"+asideSuffix)); err != nil {
				t.Errorf("it was not kept: %v", err)
			}
			if found, err := Read(dir, "f", 1, &got); found || err != nil {
				t.Errorf("read again: %v, %v", found, err)
			}
			put(t, dir, "next")
			if _, err := Read(dir, "f", 1, &got); err != nil || got != "next" {
				t.Errorf("after the next write: %q, %v", got, err)
			}
			if data, err := os.ReadFile(target); err != nil || string(data) != "the target's" {
				t.Errorf("the link's target is %q, %v", data, err)
			}
		})
	}
}

// TestWritingFollowsNoLink, neither at the file's name nor at that of its successor.
// TestWhatALaterVersionAdds to a file of the same schema costs nothing of the rest: an agent may be
// rolled back.
func TestWhatALaterVersionAdds(t *testing.T) {
	dir := t.TempDir()
	later := map[string]any{"old": "good", "new": map[string]int{"a": 1}, "list": []string{"x"}}
	if err := Write(dir, "f", 1, later, NoSync); err != nil {
		t.Fatal(err)
	}
	var now struct {
		Old string `json:"old"`
	}
	if found, err := Read(dir, "f", 1, &now); !found || err != nil || now.Old != "good" {
		t.Errorf("found %v, %v, content %+v", found, err, now)
	}
}

func TestWritingFollowsNoLink(t *testing.T) {
	for _, name := range []string{"f", freshName("f")} {
		dir := t.TempDir()
		target := filepath.Join(dir, "target")
		if err := errors.Join(os.WriteFile(target, []byte("the target's"), 0o600), os.Symlink(target, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
		put(t, dir, "good")
		got := ""
		if _, err := Read(dir, "f", 1, &got); err != nil || got != "good" {
			t.Errorf("%s: read %q, %v", name, got, err)
		}
		if data, err := os.ReadFile(target); err != nil || string(data) != "the target's" {
			t.Errorf("%s: the link's target is %q, %v", name, data, err)
		}
	}
}

func TestMakeDir(t *testing.T) {
	cases := map[string]struct {
		given func(dir string) error
		aside bool
	}{
		"nothing there":    {given: func(string) error { return nil }},
		"ours":             {given: func(dir string) error { return os.Mkdir(dir, 0o700) }},
		"open to readers":  {given: func(dir string) error { return os.Mkdir(dir, 0o755) }},
		"open to writers":  {given: func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) }, aside: true},
		"a file":           {given: func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, aside: true},
		"a link":           {given: func(dir string) error { return os.Symlink(os.TempDir(), dir) }, aside: true},
		"a link into void": {given: func(dir string) error { return os.Symlink("/nowhere/at/all", dir) }, aside: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := c.given(dir); err != nil {
				t.Fatal(err)
			}
			if err := MakeDir(dir); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(dir)
			if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
				t.Errorf("there is %v, %v", info.Mode(), err)
			}
			if _, err := os.Lstat(dir + asideSuffix); (err == nil) != c.aside {
				t.Errorf("moved aside: %v, want %v", err == nil, c.aside)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "good")
	for range 2 {
		if err := Remove(dir, "f"); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := Read(dir, "f", 1, new(string)); found || err != nil {
		t.Errorf("read: %v, %v", found, err)
	}
}

// otherUsers is a file whose owner is another user.
type otherUsers struct{ fs.FileInfo }

func (o otherUsers) Sys() any { return &syscall.Stat_t{Uid: uint32(os.Geteuid()) + 1} } //nolint:gosec // a user ID

func TestFilesOfOthersAreNotTrusted(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "good")
	info, err := os.Lstat(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := owned(info, true); err != nil {
		t.Errorf("our own: %v", err)
	}
	if err := owned(otherUsers{info}, true); err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("another user's: %v", err)
	}
}
