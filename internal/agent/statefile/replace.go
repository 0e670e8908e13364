// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Dir is a directory in which a file is replaced. Before each call, the node may die.
type Dir interface {
	// RemoveAll removes what has the name, if anything.
	RemoveAll(name string) error
	// Create makes a new file. It fails on whatever has the name already, also on a link.
	Create(name string, mode fs.FileMode) (File, error)
	// Rename gives a file the name of another, which it replaces.
	Rename(from, to string) error
	// Sync makes the directory's names durable.
	Sync() error
}

// File is a file that is being written.
type File interface {
	io.WriteCloser
	// Sync makes the content durable.
	Sync() error
}

// ReplaceIn writes data to a file called fresh and renames that to name: at every moment the old or
// the new file is there, whole. Once it has returned nil, a power cut leaves the new one.
func ReplaceIn(d Dir, fresh, name string, data []byte, mode fs.FileMode) error {
	if err := d.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	f, err := d.Create(fresh, mode)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := d.Rename(fresh, name); err != nil {
		return fmt.Errorf("put in place: %w", err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}

// Disk is a Dir of the operating system.
type Disk struct {
	*os.Root
	// Durable is false where nothing outlives the process: then no sync is made.
	Durable bool
}

// Create implements Dir.
func (d Disk) Create(name string, mode fs.FileMode) (File, error) {
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	if !d.Durable {
		return noSync{f}, nil
	}
	return f, nil
}

// Sync implements Dir.
func (d Disk) Sync() error {
	if !d.Durable {
		return nil
	}
	f, err := d.Open(".")
	if err != nil {
		return err //nolint:wrapcheck // it names the directory
	}
	return errors.Join(f.Sync(), f.Close())
}

type noSync struct{ *os.File }

// Sync does nothing.
func (noSync) Sync() error { return nil }
