// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// disk is files whose machine dies before call number left. What was not synced is lost then: of a
// file its content, of a directory the changes of its names, unless the disk happened to have
// written them.
type disk struct {
	Disk
	dir      string
	left     int
	undo     []func() error // changes of names that were not synced, newest last
	unsynced map[string]bool
}

var errDead = errors.New("the machine is dead")

func (d *disk) alive() error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return nil
}

func (d *disk) RemoveAll(name string) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.Disk.RemoveAll(name)
}

func (d *disk) Rename(from, to string) error {
	if err := d.alive(); err != nil {
		return err
	}
	before, err := os.ReadFile(filepath.Join(d.dir, to))
	d.undo = append(d.undo, func() error {
		if errors.Is(err, fs.ErrNotExist) {
			return d.Remove(to)
		}
		return d.WriteFile(to, before, 0o600)
	})
	if d.unsynced[from] {
		d.unsynced[to] = true
	}
	return d.Disk.Rename(from, to)
}

func (d *disk) Sync() error {
	if err := d.alive(); err != nil {
		return err
	}
	d.undo = nil
	return nil
}

func (d *disk) Create(name string, mode fs.FileMode) (File, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	d.unsynced[name] = true
	f, err := d.Disk.Create(name, mode)
	return &dyingFile{File: f, disk: d, name: name}, err
}

type dyingFile struct {
	File
	disk *disk
	name string
}

func (f *dyingFile) Write(data []byte) (int, error) {
	if err := f.disk.alive(); err != nil {
		n, _ := f.File.Write(data[:len(data)/2])
		return n, err
	}
	return f.File.Write(data)
}

func (f *dyingFile) Sync() error {
	if err := f.disk.alive(); err != nil {
		return err
	}
	delete(f.disk.unsynced, f.name)
	return nil
}

// cut is what is left after the power went: changes of names that were not synced are there or not.
func (d *disk) cut(t *testing.T, namesLost bool) {
	t.Helper()
	for name := range d.unsynced {
		if err := os.Truncate(filepath.Join(d.dir, name), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for i := len(d.undo) - 1; i >= 0 && namesLost; i-- {
		if err := d.undo[i](); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryMoment kills the writer before each of its calls, alone or with the machine: what is
// read afterwards is the old or the new content, and the new one once the write had returned.
func TestEveryMoment(t *testing.T) {
	ended := false
	for at := 0; !ended; at++ {
		for _, end := range []string{"the agent", "the machine", "the machine, names lost"} {
			t.Run(fmt.Sprintf("%s ends at call %d", end, at), func(t *testing.T) {
				dir := t.TempDir()
				put(t, dir, "old")
				data, err := Encode(1, "new")
				if err != nil {
					t.Fatal(err)
				}
				root, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = root.Close() }()
				d := &disk{Disk: Disk{Root: root, Fsync: NoSync}, dir: dir, left: at, unsynced: map[string]bool{}}
				wrote := ReplaceIn(d, freshName("f"), "f", data, 0o600)
				if end != "the agent" {
					d.cut(t, end != "the machine")
				}
				var got string
				if _, err := Read(dir, "f", 1, &got); err != nil {
					t.Fatalf("after %v: %v", wrote, err)
				}
				if got != "new" && (wrote == nil || got != "old") {
					t.Errorf("read %q after the write returned %v", got, wrote)
				}
				put(t, dir, "next") // and what was left of the last write is not in the way
				if _, err := Read(dir, "f", 1, &got); err != nil || got != "next" {
					t.Errorf("afterwards: %q, %v", got, err)
				}
				ended = wrote == nil
			})
		}
		if at > 20 {
			t.Fatal("no end")
		}
	}
}

func put(t *testing.T, dir, content string) {
	t.Helper()
	data, err := Encode(1, content)
	if err == nil {
		err = Replace(dir, "f", data, 0o600, NoSync)
	}
	if err != nil {
		t.Fatal(err)
	}
}
