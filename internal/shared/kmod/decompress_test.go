// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// A small file must not make us use memory without bound.
func TestDecompressIsBounded(t *testing.T) {
	zeros := make([]byte, 1<<20)
	var gz, x, zst bytes.Buffer
	gzw := gzip.NewWriter(&gz)
	xw, err := xz.NewWriter(&x)
	if err != nil {
		t.Fatal(err)
	}
	zw, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{gzw, xw, zw} {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"plain": zeros, "gzip": gz.Bytes(), "xz": x.Bytes(), "zstd": zst.Bytes()} {
		if got, err := unpack(content, 1<<20, io.ReadAll); err != nil || !bytes.Equal(got, zeros) {
			t.Errorf("%s: %d bytes, error %v", name, len(got), err)
		}
		if got, err := unpack(content, 1<<20-1, io.ReadAll); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s over the limit: %d bytes, error %v", name, len(got), err)
		}
	}
}

func TestCheckXZ(t *testing.T) {
	content := make([]byte, 300_000) // half noise, so that there are stored and compressed chunks
	random := rand.NewChaCha8([32]byte{})
	if _, err := random.Read(content[:150_000]); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]xz.WriterConfig{
		"one block":   {CheckSum: xz.CRC32, DictCap: 1 << 20},
		"many blocks": {CheckSum: xz.SHA256, DictCap: 1 << 20, BlockSize: 10_000},
		"no check":    {NoCheckSum: true, DictCap: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := config.NewWriter(&out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := checkXZ(out.Bytes(), 1<<20); err != nil {
				t.Errorf("refused: %v", err)
			}
			if err := checkXZ(out.Bytes(), 1<<20-1); err == nil || errors.Is(err, errXZ) {
				t.Errorf("dictionary over the limit: error %v", err)
			}
			for cut := range 200 {
				if err := checkXZ(out.Bytes()[:cut], 1<<20); err == nil {
					t.Errorf("accepted when cut to %d bytes", cut)
				}
			}
			if got, err := Decompress(out.Bytes()); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes, error %v", len(got), err)
			}
		})
	}
}

// TestATruncatedFileIsMalformed: a part of a module is not taken for the module.
func TestATruncatedFileIsMalformed(t *testing.T) {
	content := make([]byte, 300_000)
	if _, err := rand.NewChaCha8([32]byte{}).Read(content[:150_000]); err != nil {
		t.Fatal(err)
	}
	for name, compress := range map[string]func(io.Writer) (io.WriteCloser, error){
		"gzip": func(to io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(to), nil },
		"xz":   func(to io.Writer) (io.WriteCloser, error) { return xz.WriterConfig{CheckSum: xz.CRC32}.NewWriter(to) },
		"zstd": func(to io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(to) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := compress(&out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := unpack(out.Bytes(), 1<<20, io.ReadAll); err != nil || !bytes.Equal(got, content) {
				t.Errorf("whole: %d bytes, error %v", len(got), err)
			}
			for cut := 100; cut < out.Len(); cut += out.Len() / 50 {
				if got, err := unpack(out.Bytes()[:cut], 1<<20, io.ReadAll); !errors.Is(err, ErrMalformed) {
					t.Errorf("cut to %d of %d bytes: %d bytes, error %v", cut, out.Len(), len(got), err)
				}
			}
		})
	}
}
