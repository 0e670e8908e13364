// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the dictionary that a compressed layer may allocate, in bytes.
const maxWindow = 64 << 20

// budget counts what an image costs, over all that is read of it.
type budget struct {
	limits   Limits
	entries  int
	names    int64
	unpacked int64
	wanted   int64
}

func (b *budget) entry(h *tar.Header) error {
	b.entries++
	b.names += int64(len(h.Name) + len(h.Linkname))
	for name, value := range h.PAXRecords {
		if h.Typeflag == tar.TypeDir && strings.HasPrefix(name, xattrPrefix) {
			b.names += int64(len(name) + len(value))
		}
	}
	switch {
	case b.entries > b.limits.Entries:
		return fmt.Errorf("%w: more than %d entries", ErrRefused, b.limits.Entries)
	case b.names > b.limits.Names:
		return fmt.Errorf("%w: more than %d bytes of names", ErrRefused, b.limits.Names)
	}
	return nil
}

// look reads the entries of all layers, the highest first, without their content.
func look(ctx context.Context, layers []v1.Layer, spent *budget) (*view, error) {
	seen := newView()
	for at := len(layers) - 1; at >= 0; at-- {
		err := scan(ctx, layers[at], spent, func(h *tar.Header, _ io.Reader) error {
			if err := spent.entry(h); err != nil {
				return err
			}
			return seen.add(int32(at), h)
		})
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", at+1, len(layers), err)
		}
	}
	return seen, nil
}

// scan visits the entries of a layer. It reads to the layer's end, where the digest is verified.
func scan(ctx context.Context, layer v1.Layer, spent *budget, visit func(*tar.Header, io.Reader) error) (err error) {
	packed, err := layer.Compressed()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("close", packed.Close())) }()
	source := bufio.NewReaderSize(&patient{ctx: ctx, from: packed}, 64<<10)
	unpacked, done, err := decompress(source)
	if err != nil {
		return err
	}
	defer done()
	bounded := &bounded{from: unpacked, spent: spent}
	archive := tar.NewReader(bounded)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return malformed(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := visit(h, archive); err != nil {
			return err
		}
	}
	for _, rest := range []io.Reader{bounded, source} {
		if _, err := io.Copy(io.Discard, rest); err != nil {
			return malformed(err)
		}
	}
	return nil
}

// malformed marks errors of a layer's content; errors of the connection stay as they are.
func malformed(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, gzip.ErrHeader) ||
		errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrCRCMismatch) {
		return fmt.Errorf("%w: unreadable: %w", ErrRefused, err)
	}
	return fmt.Errorf("read: %w", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// decompress goes by the first bytes, as runtimes do, not by the manifest.
func decompress(packed *bufio.Reader) (io.Reader, func(), error) {
	start, err := packed.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read: %w", err)
	}
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			return nil, nil, malformed(err)
		}
		return unpacked, func() { _ = unpacked.Close() }, nil
	case bytes.Equal(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		unpacked, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, malformed(err)
		}
		return unpacked, unpacked.Close, nil
	}
	return packed, func() {}, nil
}

// patient ends a read when the context does.
type patient struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (p *patient) Read(into []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	return p.from.Read(into) //nolint:wrapcheck // readers pass io.EOF on as it is
}

// bounded ends a read when an image unpacks to more than it may.
type bounded struct {
	from  io.Reader
	spent *budget
}

// Read implements io.Reader.
func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.from.Read(into)
	b.spent.unpacked += int64(n)
	if b.spent.unpacked > b.spent.limits.Unpacked {
		return n, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrRefused, b.spent.limits.Unpacked)
	}
	return n, err //nolint:wrapcheck // readers pass io.EOF on as it is
}
