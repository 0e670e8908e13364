// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// elfRelocatable is ET_REL, the type of kernel modules.
const elfRelocatable = 1

// maxSections bounds the section table; -ffunction-sections builds have a few ten thousand.
const maxSections = 1 << 17

// elfFile is as much of an ELF file as facts about a module need. Its input is not trusted: sizes
// that the file names allocate nothing, and every offset is checked. (debug/elf does not promise
// that.)
type elfFile struct {
	data     []byte
	order    binary.ByteOrder
	wide     bool // ELF64
	kind     uint16
	machine  uint16
	headers  []sectionHeader
	sections map[string][]byte // those that are wanted, by name
}

type sectionHeader struct {
	name, kind, link    uint32
	flags, offset, size uint64
}

func parseELF(data []byte) (*elfFile, error) {
	f := &elfFile{data: data, sections: map[string][]byte{}}
	if len(data) < 20 || !bytes.HasPrefix(data, []byte("\x7fELF")) {
		return nil, fmt.Errorf("%w: not an ELF file", ErrMalformed)
	}
	switch data[4] {
	case 1:
	case 2:
		f.wide = true
	default:
		return nil, fmt.Errorf("%w: ELF class %d", ErrMalformed, data[4])
	}
	switch data[5] {
	case 1:
		f.order = binary.LittleEndian
	case 2:
		f.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("%w: ELF byte order %d", ErrMalformed, data[5])
	}
	f.kind, f.machine = f.order.Uint16(data[16:]), f.order.Uint16(data[18:])
	names, err := f.readHeaders()
	if err != nil {
		return nil, err
	}
	return f, f.readSections(names)
}

// readHeaders reads the section headers, and returns the one of the section that holds their names.
func (f *elfFile) readHeaders() (names sectionHeader, err error) {
	fileHeader, size := 52, 40
	if f.wide {
		fileHeader, size = 64, 64
	}
	if len(f.data) < fileHeader {
		return names, fmt.Errorf("%w: ELF header cut short", ErrMalformed)
	}
	var offset uint64
	tail := f.data[46:]
	if f.wide {
		offset, tail = f.order.Uint64(f.data[40:]), f.data[58:]
	} else {
		offset = uint64(f.order.Uint32(f.data[32:]))
	}
	entry, count, index := int(f.order.Uint16(tail)), uint64(f.order.Uint16(tail[2:])), uint32(f.order.Uint16(tail[4:]))
	if offset == 0 || entry != size {
		return names, fmt.Errorf("%w: no section table", ErrMalformed)
	}
	first, ok := f.slice(offset, uint64(size))
	if !ok {
		return names, fmt.Errorf("%w: section table outside the file", ErrMalformed)
	}
	zero := f.header(first) // with more sections than 16 bits count, it says how many
	if count == 0 {
		count = zero.size
	}
	if index == 0xffff {
		index = zero.link
	}
	if count > maxSections || uint64(index) >= count {
		return names, fmt.Errorf("%w: %d sections, names in %d", ErrMalformed, count, index)
	}
	table, ok := f.slice(offset, count*uint64(size))
	if !ok {
		return names, fmt.Errorf("%w: section table outside the file", ErrMalformed)
	}
	f.headers = make([]sectionHeader, 0, count)
	for ; len(table) > 0; table = table[size:] {
		f.headers = append(f.headers, f.header(table))
	}
	return f.headers[index], nil
}

func (f *elfFile) header(raw []byte) sectionHeader {
	u32 := func(at int) uint32 { return f.order.Uint32(raw[at:]) }
	if !f.wide {
		return sectionHeader{
			name: u32(0), kind: u32(4), flags: uint64(u32(8)), offset: uint64(u32(16)), size: uint64(u32(20)), link: u32(24),
		}
	}
	u64 := func(at int) uint64 { return f.order.Uint64(raw[at:]) }
	return sectionHeader{name: u32(0), kind: u32(4), flags: u64(8), offset: u64(24), size: u64(32), link: u32(40)}
}

const (
	sectionNoBits     = 8       // SHT_NOBITS
	sectionCompressed = 1 << 11 // SHF_COMPRESSED: only ever debug information
)

func (f *elfFile) readSections(names sectionHeader) error {
	table, ok := f.content(names)
	if !ok {
		return fmt.Errorf("%w: section names outside the file", ErrMalformed)
	}
	for _, header := range f.headers[1:] {
		if header.kind == 0 {
			continue
		}
		if uint64(header.name) >= uint64(len(table)) {
			return fmt.Errorf("%w: section name outside the table", ErrMalformed)
		}
		name, _, ok := bytes.Cut(table[header.name:], []byte{0})
		if !ok {
			return fmt.Errorf("%w: section name without an end", ErrMalformed)
		}
		if !wanted[string(name)] {
			continue
		}
		if header.kind == sectionNoBits || header.flags&sectionCompressed != 0 {
			return fmt.Errorf("%w: section %s has no plain content", ErrMalformed, name)
		}
		content, ok := f.content(header)
		if !ok {
			return fmt.Errorf("%w: section %s outside the file", ErrMalformed, name)
		}
		if _, twice := f.sections[string(name)]; !twice {
			f.sections[string(name)] = content
		}
	}
	return nil
}

// wanted are the sections that facts come from.
var wanted = map[string]bool{
	".modinfo": true, ".note.gnu.build-id": true, sectionCRCs: true, sectionExtCRCs: true, sectionExtNames: true,
}

func (f *elfFile) content(section sectionHeader) ([]byte, bool) {
	return f.slice(section.offset, section.size)
}

// slice returns data[offset:offset+size] if it lies within the file.
func (f *elfFile) slice(offset, size uint64) ([]byte, bool) {
	length := uint64(len(f.data))
	if offset > length || size > length-offset {
		return nil, false
	}
	return f.data[offset : offset+size], true
}

// maxBuildID bounds a build ID, in bytes. Linkers write 8, 16 or 20; by hand, one can have any
// length. It stands in status and journal, twice as long.
const maxBuildID = 64

// ParseBuildID reads the GNU build ID of an ELF note section, whose bytes the kernel shows as
// /sys/module/<name>/notes/.note.gnu.build-id. It has at most 64 bytes.
func ParseBuildID(note []byte, order binary.ByteOrder) ([]byte, error) {
	const typeBuildID = 3
	for len(note) >= 12 {
		nameSize, descSize, kind := uint64(order.Uint32(note)), uint64(order.Uint32(note[4:])), order.Uint32(note[8:])
		body := note[12:]
		nameEnd := (nameSize + 3) &^ 3
		descEnd := nameEnd + (descSize+3)&^3
		if nameEnd+descSize > uint64(len(body)) {
			return nil, fmt.Errorf("%w: ELF note cut short", ErrMalformed)
		}
		if kind == typeBuildID && string(body[:nameSize]) == "GNU\x00" {
			if descSize > maxBuildID {
				return nil, fmt.Errorf("%w: a build ID of %d bytes, and at most %d are read", ErrMalformed, descSize, maxBuildID)
			}
			return body[nameEnd : nameEnd+descSize], nil
		}
		note = body[min(descEnd, uint64(len(body))):]
	}
	return nil, fmt.Errorf("%w: no GNU build ID in its section", ErrMalformed)
}
