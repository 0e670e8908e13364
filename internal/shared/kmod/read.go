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

// large is the size in bytes from which files are held outside of the heap, where a file
// that is done with would lie beside the next one until the garbage is collected. Most modules are
// smaller.
const large = 1 << 20

// Content is the content of a module's file, decompressed. It takes no more memory than its bytes,
// the compressed file's while that is read, and a few MiB.
type Content struct {
	// Raw is the module. Keep nothing of it after Release.
	Raw []byte
	// Compression is how the file is compressed.
	Compression Compression

	memory memory
}

// Release gives the memory back at once.
func (c *Content) Release() {
	c.Raw = nil
	c.memory.release()
}

// Load reads a module's file. Errors wrap ErrMalformed or ErrTooLarge, or are those of reading.
func Load(file fs.File) (*Content, error) {
	size, err := sizeOf(file, MaxSize)
	if err != nil {
		return nil, err
	}
	packed := memory{}
	content, err := packed.read(io.LimitReader(file, MaxSize+1), size)
	if err == nil && len(content) > MaxSize {
		err = fmt.Errorf("%w: limit %d", ErrTooLarge, MaxSize)
	}
	if err != nil {
		packed.release()
		return nil, fmt.Errorf("read: %w", err)
	}
	c := &Content{Raw: content, Compression: formatOf(content).is, memory: packed}
	if c.Compression == Plain {
		return c, nil
	}
	defer packed.release()
	c.memory = memory{}
	if c.Raw, err = unpack(content, MaxSize, func(from io.Reader) ([]byte, error) { return c.memory.read(from, 0) }); err != nil {
		c.Release()
		return nil, err
	}
	return c, nil
}

// memory is outside of the heap where possible.
type memory struct{ mapped []byte }

// read takes all there is, at most one byte more than MaxSize. What is known to be small goes to
// the heap; size is 0 if it is not known.
func (m *memory) read(from io.Reader, size int64) ([]byte, error) {
	if size > 0 && size < large || m.reserve(MaxSize+1) != nil {
		return onHeap(from, size)
	}
	n := 0
	for n < len(m.mapped) {
		more, err := from.Read(m.mapped[n:])
		n += more
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err //nolint:wrapcheck // callers know the file
		}
	}
	return m.mapped[:n:n], nil
}
