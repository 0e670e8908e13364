// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/nofollow"
	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	ledgerFile     = "firmware.json"
	ledgerSchema   = 1
	damagedSuffix  = ".damaged"
	maxLedgerBytes = 64 << 20
)

// ledger is who needs which files. Which of them are ours, marks tell.
type ledger struct {
	Schema int `json:"schema"`
	// Claims by owner. An owner that begins with "/" is nobody: its claim is what was found in that
	// directory when the ledger was lost.
	Claims map[string]claim `json:"claims,omitempty"`
	// Dirs in which something of ours may be, with the directories below them that we made. They are
	// recorded before they are made.
	Dirs  map[string][]string `json:"dirs,omitempty"`
	Wrote *Wrote              `json:"wrote,omitempty"` // recorded before the search path is written
}

type claim struct {
	Dir   string            `json:"dir"`
	Files map[string]string `json:"files"` // SHA-256 digests by path below Dir
}

func claimOn(dir string, sources []source) claim {
	c := claim{Dir: dir, Files: make(map[string]string, len(sources))}
	for _, s := range sources {
		c.Files[s.path] = s.digest
	}
	return c
}

func nobody(owner string) bool { return strings.HasPrefix(owner, "/") }

func newLedger() ledger {
	return ledger{Schema: ledgerSchema, Claims: map[string]claim{}, Dirs: map[string][]string{}}
}

// clone copies as deep as changes go.
func (l ledger) clone() ledger {
	l.Claims = maps.Clone(l.Claims)
	l.Dirs = maps.Clone(l.Dirs)
	return l
}

func (l ledger) wants(dir, name, digest string) bool {
	return l.any(func(c claim) bool { return c.Dir == dir && c.Files[name] == digest })
}

func (l ledger) uses(dir string) bool { return l.any(func(c claim) bool { return c.Dir == dir }) }

func (l ledger) any(is func(claim) bool) bool {
	for _, c := range l.Claims {
		if is(c) {
			return true
		}
	}
	return false
}

// rival returns another owner who needs other content there. Nobody's claims give way.
func (l ledger) rival(owner, dir string, s source) string {
	for _, other := range slices.Sorted(maps.Keys(l.Claims)) {
		c := l.Claims[other]
		if digest, ok := c.Files[s.path]; ok && c.Dir == dir && digest != s.digest && other != owner && !nobody(other) {
			return other
		}
	}
	return ""
}

// blocker returns another owner who has a file where name needs a directory, or the reverse.
func (l ledger) blocker(owner, dir, name string) string {
	for _, other := range slices.Sorted(maps.Keys(l.Claims)) {
		c := l.Claims[other]
		if c.Dir != dir || other == owner || nobody(other) {
			continue
		}
		for file := range c.Files {
			if strings.HasPrefix(name, file+"/") || strings.HasPrefix(file, name+"/") {
				return other
			}
		}
	}
	return ""
}

// equal ignores order and emptiness.
func (l ledger) equal(other ledger) bool {
	same := func(a, b claim) bool { return a.Dir == b.Dir && maps.Equal(a.Files, b.Files) }
	return maps.EqualFunc(l.Claims, other.Claims, same) && maps.EqualFunc(l.Dirs, other.Dirs, slices.Equal) &&
		(l.Wrote == nil) == (other.Wrote == nil) && (l.Wrote == nil || *l.Wrote == *other.Wrote)
}

// claimed returns the ledger with the owner's claim replaced; nobody's claim to its files ends.
func (l ledger) claimed(owner, dir string, sources []source) ledger {
	l = l.clone()
	files := claimOn(dir, sources).Files
	if old, ok := l.Claims[dir]; ok {
		rest := maps.Clone(old.Files)
		maps.DeleteFunc(rest, func(name, _ string) bool { _, taken := files[name]; return taken })
		l.Claims[dir] = claim{Dir: dir, Files: rest}
		if len(rest) == 0 {
			delete(l.Claims, dir)
		}
	}
	delete(l.Claims, owner)
	if len(files) > 0 {
		l.Claims[owner] = claim{Dir: dir, Files: files}
	}
	return l
}

var errDamaged = errors.New("the firmware ledger is damaged and was moved aside")

// readLedger returns fs.ErrNotExist if there is none, and errDamaged for one that it moved aside.
func readLedger(state *os.Root) (ledger, error) {
	l, err := decodeLedger(state)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	if statefile.Passing(err) {
		return l, fmt.Errorf("read the firmware ledger: %w", err)
	}
	if err := state.Rename(ledgerFile, ledgerFile+damagedSuffix); err != nil {
		return l, fmt.Errorf("move the damaged firmware ledger aside: %w", err)
	}
	return l, fmt.Errorf("%w: %w", errDamaged, err)
}

func decodeLedger(state *os.Root) (ledger, error) {
	l := newLedger()
	data, err := nofollow.ReadFile(state, ledgerFile, maxLedgerBytes)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return newLedger(), fmt.Errorf("decode: %w", err)
	}
	if l.Claims == nil {
		l.Claims = map[string]claim{}
	}
	if l.Dirs == nil {
		l.Dirs = map[string][]string{}
	}
	return l, l.validate()
}

// validate refuses what leads out of a directory, or another version's ledger.
func (l ledger) validate() error {
	if l.Schema != ledgerSchema {
		return fmt.Errorf("schema %d, want %d", l.Schema, ledgerSchema)
	}
	for owner, c := range l.Claims {
		if err := checkDir(c.Dir); err != nil {
			return err
		}
		for name := range c.Files {
			if err := acceptable(name); err != nil {
				return fmt.Errorf("claim of %s: %w", owner, err)
			}
		}
	}
	for dir, made := range l.Dirs {
		if err := checkDir(dir); err != nil {
			return err
		}
		for _, name := range made {
			if err := acceptable(name); err != nil {
				return fmt.Errorf("directories in %s: %w", dir, err)
			}
		}
	}
	return nil
}

// writeLedger replaces the ledger atomically.
func writeLedger(state *os.Root, l ledger, sync statefile.Sync, step func(string)) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode the firmware ledger: %w", err)
	}
	b := base{root: state, sync: sync, step: step}
	err = b.write(ledgerFile+tmpSuffix, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return wrap("write", ledgerFile, err)
	})
	if err != nil {
		return err
	}
	return b.rename(ledgerFile+tmpSuffix, ledgerFile)
}
