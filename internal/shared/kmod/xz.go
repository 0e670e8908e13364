// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

var errXZ = errors.New("xz: damaged or unsupported container")

// checkXZ walks the blocks of an xz stream without decoding them and refuses a dictionary larger
// than maxDict bytes: the decoder would allocate whatever a block asks for, up to 4 GiB. Layout:
// https://tukaani.org/xz/xz-file-format.txt, sections 2.1 and 3.1.
func checkXZ(content []byte, maxDict uint64) error {
	const streamHeader = 12
	if len(content) < streamHeader {
		return errXZ
	}
	checkSize, ok := map[byte]int{0x00: 0, 0x01: 4, 0x04: 8, 0x0a: 32}[content[7]]
	if !ok {
		return fmt.Errorf("%w: check type %d", errXZ, content[7])
	}
	rest := content[streamHeader:]
	for {
		if len(rest) == 0 {
			return errXZ
		}
		if rest[0] == 0 {
			return nil // the index follows the last block
		}
		header := (int(rest[0]) + 1) * 4
		if len(rest) < header {
			return errXZ
		}
		dict, err := xzDictionary(rest[1 : header-4])
		if err != nil {
			return err
		}
		if dict > maxDict {
			return fmt.Errorf("xz: dictionary of %d bytes, limit %d", dict, maxDict)
		}
		data, err := lzma2Length(rest[header:])
		if err != nil {
			return err
		}
		block := header + (data+3)&^3 + checkSize
		if len(rest) < block {
			return errXZ
		}
		rest = rest[block:]
	}
}

// xzDictionary reads a block header (after its size byte, without its CRC), which must name the
// LZMA2 filter alone, and returns its dictionary size in bytes.
func xzDictionary(header []byte) (uint64, error) {
	reader := bytes.NewReader(header)
	flags, err := reader.ReadByte()
	if err != nil || flags&0x3f != 0 {
		return 0, fmt.Errorf("%w: filters other than LZMA2", errXZ)
	}
	for _, present := range []bool{flags&0x40 != 0, flags&0x80 != 0} { // compressed and uncompressed size
		if present {
			if _, err := binary.ReadUvarint(reader); err != nil {
				return 0, errXZ
			}
		}
	}
	var filter [3]byte // id, size of properties, dictionary size
	if n, err := reader.Read(filter[:]); err != nil || n != len(filter) || filter[0] != 0x21 || filter[1] != 1 || filter[2] > 40 {
		return 0, fmt.Errorf("%w: filters other than LZMA2", errXZ)
	}
	if filter[2] == 40 {
		return 1<<32 - 1, nil
	}
	return uint64(2|filter[2]&1) << (filter[2]/2 + 11), nil
}

// lzma2Length is the length of the LZMA2 data at the start of data, up to and with its end marker.
func lzma2Length(data []byte) (int, error) {
	for at := 0; at < len(data); {
		var header, payload int
		switch control := data[at]; {
		case control == 0:
			return at + 1, nil
		case control <= 2: // stored
			header = 3
			if at+header <= len(data) {
				payload = int(binary.BigEndian.Uint16(data[at+1:])) + 1
			}
		case control >= 0x80: // compressed
			header = 5
			if control >= 0xc0 {
				header = 6 // with new properties
			}
			if at+header <= len(data) {
				payload = int(binary.BigEndian.Uint16(data[at+3:])) + 1
			}
		default:
			return 0, errXZ
		}
		at += header + payload
	}
	return 0, errXZ
}
