// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"
)

func packed(t *testing.T, check byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.WriterConfig{CheckSum: check}.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("\x7fELF")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestWhatTheKernelUnpacks: its xz knows CRC32 alone, and no filters before LZMA2.
func TestWhatTheKernelUnpacks(t *testing.T) {
	filtered := packed(t, xz.CRC32)
	filtered[13] |= 1 // `xz --x86`
	cases := map[string]struct {
		given   []byte
		kind    string
		kernels bool
	}{
		"plain":                   {given: []byte("\x7fELF\x02\x01\x01")},
		"empty":                   {given: nil},
		"gzip":                    {given: []byte("\x1f\x8b\x08"), kind: "gzip", kernels: true},
		"zstd":                    {given: []byte("\x28\xb5\x2f\xfd\x24"), kind: "zstd", kernels: true},
		"xz --check=crc32":        {given: packed(t, xz.CRC32), kind: "xz", kernels: true},
		"xz":                      {given: packed(t, xz.CRC64), kind: "xz"},
		"xz --check=sha256":       {given: packed(t, xz.SHA256), kind: "xz"},
		"xz --check=crc32 --x86":  {given: filtered, kind: "xz"},
		"xz, cut after its magic": {given: []byte("\xfd7zXZ\x00"), kind: "xz"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.ko")
			if err := os.WriteFile(path, tc.given, 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
			if kind, kernels, err := compression(file); err != nil || kind != tc.kind || kernels != tc.kernels {
				t.Errorf("%q, by the kernel: %v, %v", kind, kernels, err)
			}
		})
	}
}

// TestFirstAllowed: what a security module denies is tried in another way, and no other error is.
func TestFirstAllowed(t *testing.T) {
	const denied, refused, found = unix.EACCES, unix.EPERM, unix.EEXIST
	cases := map[string]struct {
		answers []error
		want    error
		asked   int
	}{
		"allowed at once":        {[]error{nil, denied}, nil, 1},
		"from memory":            {[]error{denied, nil, denied}, nil, 2},
		"the file alone":         {[]error{denied, denied, nil}, nil, 3},
		"in none":                {[]error{denied, denied, denied}, denied, 3},
		"another error ends it":  {[]error{denied, found, nil}, found, 2},
		"locked down":            {[]error{refused, nil, nil}, refused, 1},
		"no copy, by SELinux":    {[]error{fmt.Errorf("copy: %w", denied), nil}, nil, 2},
		"no memory for the copy": {[]error{fmt.Errorf("copy: %w", unix.ENOMEM), nil}, unix.ENOMEM, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := 0
			ways := make([]func() error, len(tc.answers))
			for i, answer := range tc.answers {
				ways[i] = func() error { asked++; return answer }
			}
			if err := firstAllowed(ways); !errors.Is(err, tc.want) || asked != tc.asked {
				t.Errorf("after %d ways: %v", asked, err)
			}
		})
	}
}

// TestInMemory: the kernel takes a file only if no descriptor may write to it.
func TestInMemory(t *testing.T) {
	file, err := inMemory([]byte("\x7fELF"), "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	content, err := io.ReadAll(file)
	if err != nil || string(content) != "\x7fELF" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := file.Write([]byte("x")); !errors.Is(err, unix.EBADF) {
		t.Errorf("it can be written to: %v", err)
	}
}
