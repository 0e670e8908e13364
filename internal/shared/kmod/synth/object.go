// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"encoding/binary"
)

// ELF constants; names as in the ELF specification's SHT_, SHF_ and SHN_.
const (
	typeProgBits uint32 = 1
	typeSymtab   uint32 = 2
	typeStrtab   uint32 = 3
	typeNote     uint32 = 7

	flagWrite uint64 = 1
	flagAlloc uint64 = 2
	flagExec  uint64 = 4

	sectionUndefined uint16 = 0
	sectionAbsolute  uint16 = 0xfff1

	headerSize = 64
)

// object writes a 64-bit little-endian relocatable ELF file.
type object struct {
	machine  uint16
	sections []section
	symbols  []byte
	strings  []byte
}

type section struct {
	name        string
	kind        uint32
	flags       uint64
	content     []byte
	link, info  uint32
	align, item uint64
}

func newObject(machine uint16) *object {
	return &object{
		machine:  machine,
		sections: []section{{}},
		symbols:  make([]byte, 24), // the null symbol
		strings:  []byte{0},
	}
}

func (o *object) section(name string, kind uint32, flags uint64, content []byte) {
	align := uint64(8)
	if kind == typeNote {
		align = 4 // readers take 8 for another layout of notes
	}
	o.sections = append(o.sections, section{name: name, kind: kind, flags: flags, content: content, align: align})
}

// index returns a section's number; 0 when there is none.
func (o *object) index(name string) uint16 {
	for i := range o.sections {
		if o.sections[i].name == name {
			return uint16(i)
		}
	}
	return 0
}

// symbol adds a global symbol.
func (o *object) symbol(name string, section uint16, value uint64) {
	const globalNoType = 1 << 4
	o.entry(name, globalNoType, section, value)
}

// weak adds a weak reference.
func (o *object) weak(name string) {
	const weakNoType = 2 << 4
	o.entry(name, weakNoType, sectionUndefined, 0)
}

func (o *object) entry(name string, info byte, section uint16, value uint64) {
	o.symbols = binary.LittleEndian.AppendUint32(o.symbols, uint32(len(o.strings)))
	o.symbols = append(o.symbols, info, 0)
	o.symbols = binary.LittleEndian.AppendUint16(o.symbols, section)
	o.symbols = binary.LittleEndian.AppendUint64(o.symbols, value)
	o.symbols = binary.LittleEndian.AppendUint64(o.symbols, 0)
	o.strings = append(append(o.strings, name...), 0)
}

func (o *object) bytes() []byte {
	strtab := uint32(len(o.sections) + 1)
	o.sections = append(o.sections,
		section{name: ".symtab", kind: typeSymtab, content: o.symbols, link: strtab, info: 1, align: 8, item: 24},
		section{name: ".strtab", kind: typeStrtab, content: o.strings, align: 1})
	names := []byte{0}
	offsets := make([]uint32, len(o.sections)+1)
	for i := range o.sections[1:] {
		offsets[i+1] = uint32(len(names))
		names = append(append(names, o.sections[i+1].name...), 0)
	}
	offsets[len(o.sections)] = uint32(len(names))
	names = append(names, ".shstrtab\x00"...)
	o.sections = append(o.sections, section{name: ".shstrtab", kind: typeStrtab, content: names, align: 1})

	file := make([]byte, headerSize)
	table := make([]byte, 64, 64*len(o.sections))
	for i, s := range o.sections[1:] {
		file = pad(file)
		table = appendHeader(table, s, offsets[i+1], uint64(len(file)))
		file = append(file, s.content...)
	}
	file = pad(file)
	o.header(file, uint64(len(file)))
	return append(file, table...)
}

func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&7)...) }

func appendHeader(table []byte, s section, name uint32, offset uint64) []byte {
	le := binary.LittleEndian
	table = le.AppendUint32(table, name)
	table = le.AppendUint32(table, s.kind)
	for _, v := range [...]uint64{s.flags, 0, offset, uint64(len(s.content))} {
		table = le.AppendUint64(table, v)
	}
	table = le.AppendUint32(table, s.link)
	table = le.AppendUint32(table, s.info)
	table = le.AppendUint64(table, s.align)
	return le.AppendUint64(table, s.item)
}

// header fills the ELF header at the start of file.
func (o *object) header(file []byte, table uint64) {
	le := binary.LittleEndian
	copy(file, "\x7fELF\x02\x01\x01") // 64-bit, little-endian, version 1
	le.PutUint16(file[16:], 1)        // ET_REL
	le.PutUint16(file[18:], o.machine)
	le.PutUint32(file[20:], 1)
	le.PutUint64(file[40:], table)
	le.PutUint16(file[52:], headerSize)
	le.PutUint16(file[58:], 64)
	le.PutUint16(file[60:], uint16(len(o.sections)))
	le.PutUint16(file[62:], uint16(len(o.sections)-1))
}
