// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// opsPerWrite is how many moments one write has: remove, create, two halves of the content, sync,
// rename, sync of the directory.
const opsPerWrite = 7

var errDead = errors.New("the node is dead")

// faulty passes calls on until its time is over; from then on all fail and nothing happens any
// more.
type faulty struct {
	statefile.Dir
	// left is how many operations still work.
	left int
	// err is what the others return.
	err error
	// before is called before each operation that works, if set.
	before func()
}

func (d *faulty) step() error {
	if d.left <= 0 {
		return d.err
	}
	d.left--
	if d.before != nil {
		d.before()
	}
	return nil
}

func (d *faulty) RemoveAll(name string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Dir.RemoveAll(name)
}

func (d *faulty) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Dir.Rename(from, to)
}

func (d *faulty) Sync() error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Dir.Sync()
}

func (d *faulty) Create(name string, mode fs.FileMode) (statefile.File, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f, err := d.Dir.Create(name, mode)
	return &faultyFile{f, d}, err
}

type faultyFile struct {
	statefile.File
	d *faulty
}

// Write has a moment in its middle.
func (f *faultyFile) Write(data []byte) (int, error) {
	done := 0
	for _, part := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		if err := f.d.step(); err != nil {
			return done, err
		}
		n, err := f.File.Write(part)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

func (f *faultyFile) Sync() error {
	if err := f.d.step(); err != nil {
		return err
	}
	return f.File.Sync()
}

// media is a disk below a page cache: the directory holds what processes see, media knows what a
// power cut may leave.
type media struct {
	statefile.Dir
	dir string
	// durable is the content that is safe under each name.
	durable map[string][]byte
	// names and contents that are not: in the order they came about.
	synced map[string]bool // of the content now under the name
	moved  bool            // a rename since the last sync of the directory
	// loses makes a sync do nothing, to see that the tests would notice.
	losesFile, losesDir bool
}

// newMedia begins with all that is in the directory safe.
func newMedia(inner statefile.Dir, dir string) *media {
	m := &media{Dir: inner, dir: dir, durable: map[string][]byte{}, synced: map[string]bool{}}
	if data, err := os.ReadFile(filepath.Join(dir, fileName)); err == nil {
		m.durable[fileName] = data
	}
	return m
}

func (m *media) Create(name string, mode fs.FileMode) (statefile.File, error) {
	f, err := m.Dir.Create(name, mode)
	m.synced[name] = false
	return &mediaFile{f, m, name}, err
}

func (m *media) Rename(from, to string) error {
	m.synced[to], m.moved = m.synced[from], true
	return m.Dir.Rename(from, to)
}

func (m *media) Sync() error {
	if m.losesDir {
		return nil
	}
	if data, err := os.ReadFile(filepath.Join(m.dir, fileName)); err == nil && m.synced[fileName] {
		m.durable[fileName], m.moved = data, false
	}
	return m.Dir.Sync()
}

type mediaFile struct {
	statefile.File
	m    *media
	name string
}

func (f *mediaFile) Sync() error {
	if f.m.losesFile {
		return nil
	}
	f.m.synced[f.name] = true
	return f.File.Sync()
}

// after returns the directories that a power cut now may leave: what is safe, with or without the
// last rename, and any part of a content that was not synced.
func (m *media) after() []map[string][]byte {
	base := map[string][]byte{}
	if old, ok := m.durable[fileName]; ok {
		base[fileName] = old
	}
	all := []map[string][]byte{base}
	add := func(name string) {
		data, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			return
		}
		parts := [][]byte{data}
		if !m.synced[name] {
			parts = append(parts, data[:len(data)/2], nil)
		}
		for _, part := range parts {
			one := map[string][]byte{name: part}
			if old, ok := base[fileName]; ok && name != fileName {
				one[fileName] = old
			}
			all = append(all, one)
		}
	}
	if m.moved {
		add(fileName)
	}
	add(newName)
	return all
}

// become makes a directory hold exactly these files.
func become(dir string, content map[string][]byte) error {
	for _, name := range []string{fileName, newName, AsideName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
		if data, ok := content[name]; ok {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
