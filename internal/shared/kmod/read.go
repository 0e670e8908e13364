// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// MaxSize bounds a module, compressed and decompressed, in bytes.
const MaxSize = 256 << 20

var (
	// ErrMalformed is wrapped by every error about a file that is not a well-formed kernel module.
	ErrMalformed = errors.New("malformed kernel module")
	// ErrTooLarge is wrapped when a file, or what it decompresses to, exceeds MaxSize.
	ErrTooLarge = errors.New("kernel module too large")
)

// Read reads the facts of a module from the content of its file, which may be compressed.
// Any input is safe: what is malformed is an error that wraps ErrMalformed or ErrTooLarge.
func Read(content []byte) (*Info, error) {
	_, info, err := parse(content)
	return info, err
}

func parse(content []byte) (*elfFile, *Info, error) {
	raw, err := Decompress(content)
	if err != nil {
		return nil, nil, err
	}
	file, err := parseELF(raw)
	if err != nil {
		return nil, nil, err
	}
	if file.kind != elfRelocatable {
		return nil, nil, fmt.Errorf("%w: ELF type %d is not a relocatable object", ErrMalformed, file.kind)
	}
	_, crcs := file.sections[sectionCRCs]
	_, extended := file.sections[sectionExtCRCs]
	info := &Info{Machine: file.machine, HasCRCs: crcs || extended, Signed: signature.Signed(raw)}
	modinfo, ok := file.sections[".modinfo"]
	if !ok {
		return nil, nil, fmt.Errorf("%w: no .modinfo section", ErrMalformed)
	}
	if err := info.parseModinfo(modinfo); err != nil {
		return nil, nil, err
	}
	if note, ok := file.sections[".note.gnu.build-id"]; ok {
		id, err := ParseBuildID(note, file.order)
		if err != nil {
			return nil, nil, err
		}
		info.BuildID = hex.EncodeToString(id)
	}
	return file, info, nil
}

// ReadFile reads the facts of one module file.
func ReadFile(fsys fs.FS, path string) (*Info, error) { return fromFile(fsys, path, Read) }

// fromFile reads something from the content of one module file.
func fromFile[T any](fsys fs.FS, path string, read func(content []byte) (*T, error)) (*T, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	content, err := Load(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer content.Release()
	found, err := read(content.Raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return found, nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(fsys fs.FS, path string, limit int64) ([]byte, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	size, err := sizeOf(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	content, err := onHeap(io.LimitReader(file, limit+1), size)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s: %w: limit %d", path, ErrTooLarge, limit)
	}
	return content, nil
}

// sizeOf is the size of a regular file of at most limit bytes.
func sizeOf(file fs.File, limit int64) (int64, error) {
	stat, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	if !stat.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: not a regular file", ErrMalformed)
	}
	if stat.Size() > limit {
		return 0, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, stat.Size(), limit)
	}
	return stat.Size(), nil
}

// onHeap reads all there is. Size is what is expected.
func onHeap(from io.Reader, size int64) ([]byte, error) {
	content := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err := content.ReadFrom(from)
	return content.Bytes(), err
}
