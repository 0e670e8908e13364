// SPDX-License-Identifier: Apache-2.0

// Package statefile keeps small files in a directory of the agent's own. Each carries its schema
// and a digest of its content, is replaced whole or not at all, and is trusted only if nobody but
// the agent can have written it. A file that is not trusted is moved aside for a person to look at,
// and the agent begins anew without it.
package statefile

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
	"path/filepath"
	"slices"
	"syscall"

	"github.com/drover-project/drover/internal/agent/nofollow"
)

const (
	asideSuffix = ".aside" // is added to the name of what is not trusted; there is at most one of each name
	maxSize     = 16 << 20 // far above what the agent writes
)

// UntrustedError says that a file was not trusted.
type UntrustedError struct {
	Name  string
	Cause error
	Kept  error // why it could not be moved aside; nil: it was
}

func (e *UntrustedError) Error() string {
	if e.Kept != nil {
		return fmt.Sprintf("%s is not used (%v) and cannot be moved aside (%v)", e.Name, e.Cause, e.Kept)
	}
	return fmt.Sprintf("%s is not used (%v) and was moved aside to %s%s", e.Name, e.Cause, filepath.Base(e.Name), asideSuffix)
}

func (e *UntrustedError) Unwrap() error { return e.Cause }

type sealed struct {
	Schema  int             `json:"schema"`
	SHA256  string          `json:"sha256"`
	Content json.RawMessage `json:"content"`
}

// MakeDir makes a directory of the agent's own. Anything else that has its name is moved aside.
func MakeDir(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil {
		if cause := owned(info, info.IsDir()); cause != nil {
			err = aside(dir)
		} else if info.Mode().Perm() != 0o700 {
			err = os.Chmod(dir, 0o700)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return nil
}

// owned returns why somebody else may have written something; nil: nobody else can have.
func owned(info fs.FileInfo, rightKind bool) error {
	if !rightKind {
		return fmt.Errorf("it is of another kind (%s)", info.Mode().Type())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write it (%s)", info.Mode())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d", st.Uid)
	}
	return nil
}

// Read decodes a file's content, and tells whether there is one. The error is an *UntrustedError if
// it was not trusted; any other error says nothing about the file.
func Read(dir, name string, schema int, into any) (found bool, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { _ = root.Close() }() // only read from
	data, err := Load(root, name, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = unseal(data, schema, into)
	}
	switch {
	case err == nil:
		return true, nil
	case Passing(err):
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return false, SetAside(dir, name, err)
}

// Passing tells whether an error is about the moment, and says nothing about what was to be read.
func Passing(err error) bool {
	passing := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN}
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// Load returns a regular file's content, at most limit bytes, if only the agent can have written
// it.
func Load(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := nofollow.OpenFile(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at it: %w", err)
	}
	if err := owned(info, info.Mode().IsRegular()); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, nil
}

func unseal(data []byte, schema int, into any) error {
	var s sealed
	if err := Decode(data, &s); err != nil {
		return err
	}
	if s.Schema != schema {
		return fmt.Errorf("its schema is %d, not %d", s.Schema, schema)
	}
	if sum := sha256.Sum256(s.Content); s.SHA256 != hex.EncodeToString(sum[:]) {
		return errors.New("its content does not match its digest")
	}
	return DecodeContent(s.Content, into)
}

// DecodeContent reads what an agent of this schema wrote, also of a later version: what that one
// added is not read. A field without which the others mislead needs another schema.
func DecodeContent(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// Decode reads JSON without fields that are not known.
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// SetAside moves a file aside because of a cause, which it returns as an *UntrustedError.
func SetAside(dir, name string, cause error) error {
	name = filepath.Join(dir, name)
	return &UntrustedError{Name: name, Cause: cause, Kept: aside(name)}
}

// aside replaces what was moved aside under this name before.
func aside(name string) error {
	if err := os.RemoveAll(name + asideSuffix); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	if err := os.Rename(name, name+asideSuffix); err != nil {
		return fmt.Errorf("move aside: %w", err)
	}
	return nil
}

// Encode returns the bytes of a file that Read reads.
func Encode(schema int, content any) ([]byte, error) {
	inner, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	sum := sha256.Sum256(inner)
	data, err := json.Marshal(sealed{Schema: schema, SHA256: hex.EncodeToString(sum[:]), Content: inner})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return data, nil
}

// freshName is what a file is called until it is in place. It begins with a dot: the kubelet reads
// what else lies beside a static pod.
func freshName(name string) string { return "." + name + ".new" }

// Sync makes what was written to a file, or the names in a directory, outlive a power cut. All that
// the agent syncs goes through one. Nil is the system's fsync.
type Sync func(*os.File) error

// NoSync leaves it to the system when files reach the disk: for throw-away nodes. A power cut may
// leave files that are not trusted.
func NoSync(*os.File) error { return nil }

// File syncs a file or directory that is open.
func (s Sync) File(f *os.File) error {
	if s == nil {
		return f.Sync() //nolint:wrapcheck // it names the file
	}
	return s(f)
}

// Dir syncs the names in a directory.
func (s Sync) Dir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return errors.Join(s.File(f), f.Close())
}

// Replace puts data in the place of a file, which may be missing; see ReplaceIn.
func Replace(dir, name string, data []byte, mode fs.FileMode, sync Sync) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	defer func() { _ = root.Close() }() // what was written through it is synced
	if err := ReplaceIn(Disk{root, sync}, freshName(name), name, data, mode); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// Write encodes content and puts it in the place of a file; see Replace.
func Write(dir, name string, schema int, content any, sync Sync) error {
	data, err := Encode(schema, content)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return Replace(dir, name, data, 0o600, sync)
}

// Remove removes a file for good. That there is none is fine.
func Remove(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = Sync(nil).Dir(dir)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

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
	Fsync Sync
}

// Create implements Dir.
func (d Disk) Create(name string, mode fs.FileMode) (File, error) {
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	return synced{f, d.Fsync}, nil
}

// Sync implements Dir.
func (d Disk) Sync() error {
	f, err := d.Open(".")
	if err != nil {
		return err //nolint:wrapcheck // it names the directory
	}
	return errors.Join(d.Fsync.File(f), f.Close())
}

type synced struct {
	*os.File
	sync Sync
}

// Sync implements File.
func (s synced) Sync() error { return s.sync.File(s.File) }
