// SPDX-License-Identifier: Apache-2.0

package fuse

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	fileName = "fuse.json"
	newName  = fileName + ".new"
	// AsideName is what a file that could not be trusted is called then. There is at most one.
	AsideName = fileName + ".damaged"

	schema  = 1
	maxSize = 1 << 20
)

// AsideError says that the fuse on disk was not trusted and begins empty: a build that was
// quarantined needs its strikes again.
type AsideError struct {
	// Cause is what is wrong with the file, and why it could not be moved aside if that failed.
	Cause error
}

func (e *AsideError) Error() string {
	return "fuse: " + fileName + " cannot be trusted and is not used: " + e.Cause.Error()
}

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
	if err := statefile.Decode(data, &outer); err != nil {
		return state{}, err
	}
	if outer.Schema != schema {
		return state{}, fmt.Errorf("schema %d instead of %d", outer.Schema, schema)
	}
	if sum := sha256.Sum256(outer.State); outer.SHA256 != hex.EncodeToString(sum[:]) {
		return state{}, errors.New("its content does not match its digest")
	}
	var in stored
	if err := statefile.DecodeContent(outer.State, &in); err != nil {
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

// load reads the state, or moves it aside: *AsideError. With any other error, nothing is known.
func load(root *os.Root) (state, error) {
	empty := state{Builds: map[Build]*entry{}}
	data, err := statefile.Load(root, fileName, maxSize)
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

func setAside(root *os.Root) error {
	if err := root.RemoveAll(AsideName); err != nil {
		return fmt.Errorf("remove %s: %w", AsideName, err)
	}
	if err := root.Rename(fileName, AsideName); err != nil {
		return fmt.Errorf("move aside: %w", err)
	}
	return nil
}

func (s *state) write(d statefile.Dir) error {
	data, err := s.encode()
	if err != nil {
		return err
	}
	if err := statefile.ReplaceIn(d, newName, fileName, data, 0o600); err != nil {
		return fmt.Errorf("fuse: write %s: %w", fileName, err)
	}
	return nil
}
