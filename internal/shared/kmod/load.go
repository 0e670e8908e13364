// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// large is the size in bytes from which files are held outside of the heap, where a file that
// nobody needs would lie beside the next one until the garbage is collected. Most modules are
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
