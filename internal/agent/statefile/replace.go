// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// names changes names in directories.
type names interface {
	// removeAll removes what has the name, if anything.
	removeAll(name string) error
	rename(from, to string) error
}

// files is what replace needs. Each call is a moment at which the node may die.
type files interface {
	names
	// create makes a new file; whatever has the name already, also a link, is an error.
	create(name string, mode fs.FileMode) (file, error)
	// syncDir makes the names in a directory durable.
	syncDir(dir string) error
}

type file interface {
	io.WriteCloser
	Sync() error
}

// freshName is what a file is called until it is in place. It begins with a dot: the kubelet reads what else lies beside a static pod.
func freshName(name string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+newSuffix)
}

func replace(d files, name string, data []byte, mode fs.FileMode) error {
	fresh := freshName(name)
	if err := d.removeAll(fresh); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	f, err := d.create(fresh, mode)
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
	if err := d.rename(fresh, name); err != nil {
		return fmt.Errorf("put in place: %w", err)
	}
	return d.syncDir(filepath.Dir(name))
}

// aside keeps one of each name: what was moved before goes.
func aside(d names, name string) error {
	if err := d.removeAll(name + asideSuffix); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	if err := d.rename(name, name+asideSuffix); err != nil {
		return fmt.Errorf("move aside: %w", err)
	}
	return nil
}

// osNames are the operating system's.
type osNames struct{}

func (osNames) removeAll(name string) error  { return os.RemoveAll(name) }  //nolint:wrapcheck // its callers say more
func (osNames) rename(from, to string) error { return os.Rename(from, to) } //nolint:wrapcheck // its callers say more

// osFiles are the operating system's.
type osFiles struct {
	osNames
	durable bool
}

func (d osFiles) create(name string, mode fs.FileMode) (file, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if !d.durable {
		return noSync{f}, nil
	}
	return f, nil
}

func (d osFiles) syncDir(dir string) error {
	if !d.durable {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}

// noSync is a file whose content may be lost with the machine.
type noSync struct{ *os.File }

// Sync does nothing.
func (noSync) Sync() error { return nil }
