// SPDX-License-Identifier: Apache-2.0

package headers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cavaliergopher/rpm"
)

// What an .rpm begins with: a lead, then two headers, the first of which is padded to a multiple of
// 8 bytes. A header is an introduction, an index and a store of values. See
// https://rpm.org/docs/6.0.x/manual/format_header.html.
const (
	leadBytes, introBytes, indexBytes = 96, 16, 16
	// maxHeader bounds index and store, in bytes. That of a kernel's headers takes some MiB.
	maxHeader = 64 << 20
)

// checkRPM looks for what the library would reserve memory for without looking: a header that is
// longer than any, and more values than their store has bytes. It leaves the file at its beginning.
func checkRPM(file io.ReadSeeker) error {
	at := int64(leadBytes)
	for range 2 {
		next, err := checkHeader(file, at)
		if err != nil {
			return err
		}
		at = (next + 7) / 8 * 8
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("return to its beginning: %w", err)
	}
	return nil
}

// checkHeader returns where the header that begins at a place ends.
func checkHeader(file io.ReadSeeker, at int64) (end int64, err error) {
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return 0, fmt.Errorf("find its header: %w", err)
	}
	intro := make([]byte, introBytes)
	if _, err := io.ReadFull(file, intro); err != nil {
		return 0, fmt.Errorf("read its header: %w", err)
	}
	entries, store := int64(binary.BigEndian.Uint32(intro[8:])), int64(binary.BigEndian.Uint32(intro[12:]))
	if entries*indexBytes+store > maxHeader {
		return 0, fmt.Errorf("its header takes %d bytes, at most %d are read", entries*indexBytes+store, maxHeader)
	}
	index := make([]byte, entries*indexBytes)
	if _, err := io.ReadFull(file, index); err != nil {
		return 0, fmt.Errorf("read its header: %w", err)
	}
	for ; len(index) > 0; index = index[indexBytes:] {
		if int64(binary.BigEndian.Uint32(index[12:])) > store {
			return 0, errors.New("its header is damaged: it has more values than bytes")
		}
	}
	return at + introBytes + entries*indexBytes + store, nil
}

// parseRPM reads the part before the files. The library panics at some damaged headers.
func parseRPM(from io.Reader) (pkg *rpm.Package, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			pkg, err = nil, fmt.Errorf("its header is damaged: %v", cause)
		}
	}()
	pkg, err = rpm.Read(from)
	if err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	return pkg, nil
}
