// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// compress writes a module and its trailer as the module's file was: plain or compressed. The
// settings suit the kernel's own decompressors, which newer modprobes use: xz with CRC32 and a
// dictionary of 1 MiB, zstd with a window of at most 8 MiB. One goroutine, and no name or time in
// the header: the output depends on the input alone.
func compress(method kmod.Compression, to io.Writer, module, trailer []byte) error {
	w, err := compressor(method, to)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{module, trailer} {
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return wrap(w.Close())
}

func compressor(method kmod.Compression, out io.Writer) (io.WriteCloser, error) {
	const xzDictionary, zstdWindow = 1 << 20, 8 << 20
	switch method {
	case kmod.Plain:
		return plain{out}, nil
	case kmod.Gzip:
		w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
		return w, wrap(err)
	case kmod.XZ:
		w, err := xz.WriterConfig{CheckSum: xz.CRC32, DictCap: xzDictionary}.NewWriter(out)
		return w, wrap(err)
	default: // zstd
		w, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
			zstd.WithWindowSize(zstdWindow))
		return w, wrap(err)
	}
}

type plain struct{ io.Writer }

// Close implements io.Closer.
func (plain) Close() error { return nil }

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("compressor: %w", err)
	}
	return nil
}
