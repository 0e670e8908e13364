// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of what is read from persistent storage, which holds few and small files.
const (
	maxDumps    = 64
	maxDumpSize = 1 << 20
)

// readDumps reads the kernel logs ("dmesg-…") in a pstore directory. Back ends split a log into parts, a file each; newer parts have lower
// numbers. A directory that is not there holds none.
func readDumps(dir string) ([]Dump, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("host: pstore: %w", err)
	}
	var dumps []Dump
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "dmesg-") || !e.Type().IsRegular() || len(dumps) >= maxDumps {
			continue
		}
		d, err := readDump(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody archives them
		}
		if err != nil {
			return dumps, err
		}
		dumps = append(dumps, d)
	}
	return dumps, nil
}

func readDump(name string) (Dump, error) {
	file, err := os.Open(name)
	if err != nil {
		return Dump{}, fmt.Errorf("host: pstore: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	info, err := file.Stat()
	if err != nil {
		return Dump{}, fmt.Errorf("host: pstore: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxDumpSize))
	if err != nil {
		return Dump{}, fmt.Errorf("host: pstore: %w", err)
	}
	return Dump{Text: string(text), Time: info.ModTime()}, nil
}
