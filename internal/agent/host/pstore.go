// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is read. EFI variables keep a kilobyte per file, so a dozen files per dump.
const (
	maxDumps     = 64
	maxDumpFiles = 4096
	maxDumpSize  = 1 << 20
	maxDumpDepth = 3           // of what systemd-pstore moves: by time, by number
	samePanic    = time.Minute // how far apart the parts of one dump may have been written
)

// readDumps reads the kernel's logs ("dmesg-…") below directories, newest first: the pstore file
// system, and where systemd-pstore moves its files early in each boot. A missing directory is
// empty. With an error, it returns what it could read.
func readDumps(dirs ...string) ([]Dump, error) {
	var parts []part
	var failed []error
	for _, dir := range dirs {
		found, err := readParts(dir)
		parts, failed = append(parts, found...), append(failed, err)
	}
	dumps := joinParts(parts)
	return dumps[:min(len(dumps), maxDumps)], errors.Join(failed...)
}

func readParts(dir string) ([]part, error) {
	type file struct {
		name string
		time time.Time
	}
	var files []file
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // somebody archives them
		case err != nil:
			return err
		case entry.IsDir():
			if rel, err := filepath.Rel(dir, name); err == nil && strings.Count(rel, "/") >= maxDumpDepth {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular(), !strings.HasPrefix(entry.Name(), "dmesg-"), strings.HasSuffix(entry.Name(), ".enc.z"):
			return nil // .enc.z: the kernel could not unpack it
		}
		info, err := entry.Info()
		if err == nil {
			files = append(files, file{name, info.ModTime()})
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("host: pstore: %w", err)
	}
	slices.SortStableFunc(files, func(a, b file) int { return b.time.Compare(a.time) })
	failed := []error{err}
	var parts []part
	for _, f := range files[:min(len(files), maxDumpFiles)] {
		p, err := readPart(f.name, f.time)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if failed = append(failed, err); err == nil {
			parts = append(parts, p)
		}
	}
	return parts, errors.Join(failed...)
}

func readPart(name string, at time.Time) (part, error) {
	file, err := os.Open(name)
	if err != nil {
		return part{}, fmt.Errorf("host: pstore: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(file, maxDumpSize))
	if err != nil {
		return part{}, fmt.Errorf("host: pstore: %w", err)
	}
	return parsePart(string(text), at), nil
}

// part is one file of a dump.
type part struct {
	of     string // the dump's name in its first line, by cause and number in that boot; empty without one
	number int    // from the end of the log: part 1 is the newest; 0: unknown
	text   string
	time   time.Time
}

// partLine is what the kernel begins each part with: "Panic#2 Part3".
var partLine = regexp.MustCompile(`^([A-Za-z][\w ]*#\d+) Part(\d+)\r?\n`)

func parsePart(text string, at time.Time) part {
	p := part{text: text, time: at}
	if m := partLine.FindStringSubmatch(text); m != nil {
		if number, err := strconv.Atoi(m[2]); err == nil {
			p.of, p.number, p.text = m[1], number, text[len(m[0]):]
		}
	}
	return p
}

// joinParts makes dumps, newest first, of parts with one name that were written at about one time.
func joinParts(parts []part) []Dump {
	var dumps [][]part
	for _, p := range parts {
		at := slices.IndexFunc(dumps, func(d []part) bool {
			return p.of != "" && d[0].of == p.of && d[0].time.Sub(p.time).Abs() <= samePanic &&
				!slices.ContainsFunc(d, func(q part) bool { return q.number == p.number })
		})
		if at < 0 {
			dumps = append(dumps, []part{p})
			continue
		}
		dumps[at] = append(dumps[at], p)
	}
	var joined []Dump
	for _, d := range dumps {
		slices.SortFunc(d, func(a, b part) int { return cmp.Compare(b.number, a.number) })
		var text strings.Builder
		for _, p := range d {
			if text.Len() > 0 && !strings.HasSuffix(text.String(), "\n") && p.number == 0 {
				text.WriteString("\n")
			}
			text.WriteString(p.text)
		}
		latest := slices.MaxFunc(d, func(a, b part) int { return a.time.Compare(b.time) })
		joined = append(joined, Dump{Text: text.String(), Time: latest.time})
	}
	slices.SortStableFunc(joined, func(a, b Dump) int { return b.Time.Compare(a.Time) })
	return joined
}
