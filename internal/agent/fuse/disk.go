// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	fileName = "fuse.json"
	newName  = fileName + ".new"
	// AsideName is what a file is called, in the same directory, after it could not be trusted. There is at most one.
	AsideName = fileName + ".damaged"

	schema  = 1
	maxSize = 1 << 20
)

// AsideError says that the fuse on disk was not trusted and begins empty. What it held is lost: a build that was
// quarantined needs its strikes again.
type AsideError struct {
	// Cause says what is wrong with it, and why moving it aside failed if it did.
	Cause error
}

// Error says what was done.
func (e *AsideError) Error() string {
	return "fuse: " + fileName + " cannot be trusted and is not used: " + e.Cause.Error()
}

// Unwrap gives the cause.
func (e *AsideError) Unwrap() error { return e.Cause }

// envelope is the file: the state and a digest of its bytes.
type envelope struct {
	Schema int             `json:"schema"`
	SHA256 string          `json:"sha256"`
	State  json.RawMessage `json:"state"`
}

// stored is the state with its map as a list.
type stored struct {
	state
	List []storedBuild `json:"builds,omitempty"`
}

type storedBuild struct {
	Build
	entry
}

func (s *state) encode() ([]byte, error) {
	out := stored{state: *s}
	for _, b := range s.ordered() {
		out.List = append(out.List, storedBuild{Build: b, entry: *s.Builds[b]})
	}
	inner, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("fuse: encode: %w", err)
	}
	sum := sha256.Sum256(inner)
	data, err := json.Marshal(envelope{Schema: schema, SHA256: hex.EncodeToString(sum[:]), State: inner})
	if err != nil {
		return nil, fmt.Errorf("fuse: encode: %w", err)
	}
	return data, nil
}

func decode(data []byte) (state, error) {
	var outer envelope
	if err := strict(data, &outer); err != nil {
		return state{}, err
	}
	if outer.Schema != schema {
		return state{}, fmt.Errorf("schema %d instead of %d", outer.Schema, schema)
	}
	if sum := sha256.Sum256(outer.State); outer.SHA256 != hex.EncodeToString(sum[:]) {
		return state{}, errors.New("its digest is another")
	}
	var in stored
	if err := strict(outer.State, &in); err != nil {
		return state{}, err
	}
	if len(in.List) > MaxBuilds {
		return state{}, fmt.Errorf("%d builds instead of at most %d", len(in.List), MaxBuilds)
	}
	s := in.state
	s.Builds = make(map[Build]*entry, len(in.List))
	for _, b := range in.List {
		s.Builds[b.Build] = new(b.entry)
	}
	return s, nil
}

func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// load reads the state. If it cannot be trusted it is moved aside, and the error is an *AsideError; with any other error
// nothing is known.
func load(root *os.Root) (state, error) {
	empty := state{Builds: map[Build]*entry{}}
	data, err := read(root)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err == nil {
		var s state
		if s, err = decode(data); err == nil {
			return s, nil
		}
	}
	if statefile.Passing(err) {
		return empty, err
	}
	return empty, &AsideError{Cause: errors.Join(err, setAside(root))}
}

// read returns the file's bytes if it is a plain file that only the agent can have written.
func read(root *os.Root) ([]byte, error) {
	f, err := nofollow.OpenFile(root, fileName)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at it: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others may write it (%s)", info.Mode())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("it belongs to user %d", st.Uid)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxSize)
	}
	return data, nil
}

func setAside(root *os.Root) error {
	if err := root.RemoveAll(AsideName); err != nil {
		return fmt.Errorf("remove %s: %w", AsideName, err)
	}
	if err := root.Rename(fileName, AsideName); err != nil {
		return fmt.Errorf("move aside: %w", err)
	}
	return nil
}

// files is what write needs of the state directory. Each call is a moment at which the node may die.
type files interface {
	// remove removes what has the name, if anything.
	remove(name string) error
	// create makes a new file; whatever has the name already, also a link, is an error.
	create(name string) (file, error)
	rename(from, to string) error
	// sync makes the directory's names durable.
	sync() error
	close() error
}

type file interface {
	io.WriteCloser
	Sync() error
}

// write replaces the file: at every moment there is the old one or the new one, whole, and when write has returned
// without an error the new one survives a power cut.
func (s *state) write(d files) error {
	data, err := s.encode()
	if err != nil {
		return err
	}
	if err := replace(d, data); err != nil {
		return fmt.Errorf("fuse: write %s: %w", fileName, err)
	}
	return nil
}

func replace(d files, data []byte) error {
	if err := d.remove(newName); err != nil {
		return err
	}
	f, err := d.create(newName)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := d.rename(newName, fileName); err != nil {
		return err
	}
	return d.sync()
}

// disk is files below a real directory.
type disk struct {
	root    *os.Root
	durable bool
}

func (d *disk) remove(name string) error     { return wrap("remove", d.root.RemoveAll(name)) }
func (d *disk) rename(from, to string) error { return wrap("rename", d.root.Rename(from, to)) }
func (d *disk) close() error                 { return wrap("close the directory", d.root.Close()) }

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (d *disk) create(name string) (file, error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if !d.durable {
		return noSync{f}, nil
	}
	return f, nil
}

func (d *disk) sync() error {
	if !d.durable {
		return nil
	}
	dir, err := d.root.Open(".")
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	return wrap("sync the directory", errors.Join(dir.Sync(), dir.Close()))
}

// noSync is a file whose content may be lost with the machine.
type noSync struct{ *os.File }

// Sync does nothing.
func (noSync) Sync() error { return nil }
