// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/drover-project/drover/internal/kmod"
)

// recompress joins a module and its trailer, compressed as the file was; a plain file is appended to. Settings are those that the kernel's own decompressors take, which
// newer modprobes leave the work to: xz with CRC32 and one dictionary of 1 MiB, zstd with a window of at most 8 MiB. One goroutine each, and no
// name or time in the header, so that the output depends on nothing else.
func recompress(file, module, trailer []byte) ([]byte, error) {
	method := kmod.CompressionOf(file)
	if method == kmod.Plain {
		return append(file, trailer...), nil
	}
	// It compresses about as well as before; a buffer that had to grow would hold twice as much.
	out := bytes.NewBuffer(make([]byte, 0, len(file)+len(file)/8+Room))
	w, err := compressor(method, out)
	if err != nil {
		return nil, err
	}
	for _, part := range [][]byte{module, trailer} {
		if _, err := w.Write(part); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end: %w", err)
	}
	return out.Bytes(), nil
}

func compressor(method kmod.Compression, out io.Writer) (io.WriteCloser, error) {
	const xzDictionary, zstdWindow = 1 << 20, 8 << 20
	switch method {
	case kmod.Gzip:
		w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
		return w, wrap(err)
	case kmod.XZ:
		w, err := xz.WriterConfig{CheckSum: xz.CRC32, DictCap: xzDictionary}.NewWriter(out)
		return w, wrap(err)
	default: // zstd
		w, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(zstdWindow))
		return w, wrap(err)
	}
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("compressor: %w", err)
	}
	return nil
}
