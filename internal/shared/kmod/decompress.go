// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxWindow bounds the dictionary that a compressed file may allocate, in bytes. The kernel's own
// build uses 2 MiB for xz, and zstd's default levels at most 8 MiB.
const maxWindow = 64 << 20

// Compression is how a module's file is compressed.
type Compression string

// Compressions that kernels and their tools take; Plain is none of them.
const (
	Plain Compression = ""
	Gzip  Compression = "gzip"
	XZ    Compression = "xz"
	Zstd  Compression = "zstd"
)

type format struct {
	magic string
	is    Compression
	open  func(content []byte) (io.Reader, func(), error)
}

var formats = []format{
	{"\x1f\x8b", Gzip, openGzip},
	{"\xfd7zXZ\x00", XZ, openXZ},
	{"\x28\xb5\x2f\xfd", Zstd, openZstd},
}

// formatOf goes by the first bytes of a file, never by its name. It is zero for a plain one.
func formatOf(content []byte) format {
	for _, f := range formats {
		if bytes.HasPrefix(content, []byte(f.magic)) {
			return f
		}
	}
	return format{}
}

// Decompress returns the content of a module file: gzip, xz and zstd by their first bytes, anything
// else as it is. The result has at most MaxSize bytes.
func Decompress(content []byte) ([]byte, error) { return unpack(content, MaxSize, io.ReadAll) }

// unpack decompresses a content by read.
func unpack(content []byte, limit int64, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	if f := formatOf(content); f.is != Plain {
		reader, done, err := f.open(content)
		if err != nil {
			return nil, fmt.Errorf("%w: decompress: %w", ErrMalformed, err)
		}
		defer done()
		out, err := read(io.LimitReader(reader, limit+1))
		if err != nil {
			return nil, fmt.Errorf("%w: decompress: %w", ErrMalformed, err)
		}
		content = out
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return content, nil
}

func openGzip(content []byte) (io.Reader, func(), error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, nil, fmt.Errorf("gzip: %w", err)
	}
	return reader, func() {}, nil
}

func openXZ(content []byte) (io.Reader, func(), error) {
	if err := checkXZ(content, maxWindow); err != nil {
		return nil, nil, err
	}
	reader, err := xz.ReaderConfig{SingleStream: true}.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, nil, fmt.Errorf("xz: %w", err)
	}
	return reader, func() {}, nil
}

func openZstd(content []byte) (io.Reader, func(), error) {
	reader, err := zstd.NewReader(bytes.NewReader(content),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(MaxSize))
	if err != nil {
		return nil, nil, fmt.Errorf("zstd: %w", err)
	}
	return reader, reader.Close, nil
}
