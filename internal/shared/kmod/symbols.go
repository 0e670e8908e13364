// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Symbol is a name that one module, or the kernel, gives to others.
type Symbol struct {
	Name string
	// CRC is the checksum of the symbol's C type (CONFIG_MODVERSIONS), if HasCRC.
	CRC    uint32
	HasCRC bool
	// Optional, of an import: the module loads without it. So do weak references, and
	// module_layout, which only the CRC table names.
	Optional bool
}

// Bounds of symbol tables. The largest modules of distributions have some 100,000 symbols and
// import some 2,000; names have at most 512 bytes (KSYM_NAME_LEN).
const (
	maxSymbols       = 1 << 21
	maxLinkedSymbols = 1 << 16
	maxSymbolName    = 4 << 10
)

const (
	sectionSymtab   = 2      // SHT_SYMTAB
	indexUndefined  = 0      // SHN_UNDEF
	indexAbsolute   = 0xfff1 // SHN_ABS
	indexReserved   = 0xff00 // SHN_LORESERVE
	bindWeak        = 2      // STB_WEAK
	prefixExport    = "__ksymtab_"
	prefixCRC       = "__crc_"
	sectionCRCs     = "__versions"
	sectionExtCRCs  = "__version_ext_crcs"
	sectionExtNames = "__version_ext_names"
)

// elfSymbol is one entry of a symbol table.
type elfSymbol struct {
	name    uint32
	info    byte
	section uint16
	value   uint64
}

// symbols returns what a module imports and exports. A file without a symbol table has neither.
func (f *elfFile) symbols() (imports, exports []Symbol, err error) {
	crcs, err := f.versions()
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(f.headers, func(h sectionHeader) bool { return h.kind == sectionSymtab })
	if at >= 0 {
		if imports, exports, err = f.symtab(f.headers[at], crcs); err != nil {
			return nil, nil, err
		}
	}
	listed := make(map[string]bool, len(imports))
	for _, s := range imports {
		listed[s.Name] = true
	}
	for _, s := range crcs {
		if !listed[s.Name] {
			s.Optional = true
			imports = append(imports, s)
		}
	}
	return imports, exports, nil
}

func (f *elfFile) symtab(table sectionHeader, crcs []Symbol) (imports, exports []Symbol, err error) {
	entries, ok := f.content(table)
	if !ok || uint64(table.link) >= uint64(len(f.headers)) {
		return nil, nil, fmt.Errorf("%w: symbol table outside the file", ErrMalformed)
	}
	names, ok := f.content(f.headers[table.link])
	if !ok {
		return nil, nil, fmt.Errorf("%w: symbol names outside the file", ErrMalformed)
	}
	size := 16
	if f.wide {
		size = 24
	}
	if len(entries)/size > maxSymbols {
		return nil, nil, fmt.Errorf("%w: %d symbols", ErrMalformed, len(entries)/size)
	}
	imported := make(map[string]Symbol, len(crcs))
	for _, s := range crcs {
		imported[s.Name] = s
	}
	exported := map[string]uint32{} // CRCs
	for ; len(entries) >= size; entries = entries[size:] {
		symbol := f.symbol(entries)
		name, err := symbolName(names, symbol.name)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case len(name) == 0:
		case symbol.section == indexUndefined:
			s := imported[string(name)]
			s.Name, s.Optional = string(name), symbol.info>>4 == bindWeak || linkersOwn[string(name)]
			imports = append(imports, s)
		case bytes.HasPrefix(name, []byte(prefixExport)):
			exports = append(exports, Symbol{Name: string(name[len(prefixExport):])})
		case bytes.HasPrefix(name, []byte(prefixCRC)):
			if crc, ok := f.exportCRC(symbol); ok {
				exported[string(name[len(prefixCRC):])] = crc
			}
		}
		if len(imports) > maxLinkedSymbols || len(exports) > maxLinkedSymbols || len(exported) > maxLinkedSymbols {
			return nil, nil, fmt.Errorf("%w: more than %d symbols are linked", ErrMalformed, maxLinkedSymbols)
		}
	}
	for i := range exports {
		exports[i].CRC, exports[i].HasCRC = exported[exports[i].Name]
	}
	return imports, exports, nil
}

// linkersOwn are undefined names of toolchains that the kernel resolves by itself or ignores.
var linkersOwn = map[string]bool{"_GLOBAL_OFFSET_TABLE_": true, ".TOC.": true}

func (f *elfFile) symbol(raw []byte) elfSymbol {
	if !f.wide {
		return elfSymbol{
			name: f.order.Uint32(raw), value: uint64(f.order.Uint32(raw[4:])), info: raw[12], section: f.order.Uint16(raw[14:]),
		}
	}
	return elfSymbol{name: f.order.Uint32(raw), info: raw[4], section: f.order.Uint16(raw[6:]), value: f.order.Uint64(raw[8:])}
}

func symbolName(names []byte, at uint32) ([]byte, error) {
	if at == 0 {
		return nil, nil
	}
	if uint64(at) >= uint64(len(names)) {
		return nil, fmt.Errorf("%w: symbol name outside the table", ErrMalformed)
	}
	end := bytes.IndexByte(names[at:min(uint64(len(names)), uint64(at)+maxSymbolName)], 0)
	if end < 0 {
		return nil, fmt.Errorf("%w: symbol name without an end", ErrMalformed)
	}
	return names[at:][:end], nil
}

// exportCRC reads a __crc_ symbol: before Linux 5.19 its value, since then 4 bytes in its section.
func (f *elfFile) exportCRC(symbol elfSymbol) (uint32, bool) {
	if symbol.section == indexAbsolute {
		return uint32(symbol.value), true
	}
	if symbol.section >= indexReserved || int(symbol.section) >= len(f.headers) {
		return 0, false
	}
	header := f.headers[symbol.section]
	content, ok := f.content(header)
	if !ok || header.kind == sectionNoBits || symbol.value > uint64(len(content)) || uint64(len(content))-symbol.value < 4 {
		return 0, false
	}
	return f.order.Uint32(content[symbol.value:]), true
}

// versions reads the CRCs of imports, as the kernel first from the newer table (Linux 6.14).
func (f *elfFile) versions() ([]Symbol, error) {
	if crcs, extended := f.sections[sectionExtCRCs]; extended {
		return f.extendedVersions(crcs, f.sections[sectionExtNames])
	}
	table := f.sections[sectionCRCs]
	const size = 64 // struct modversion_info: an unsigned long, and the name in what is left
	word := 4
	if f.wide {
		word = 8
	}
	if len(table)/size > maxLinkedSymbols {
		return nil, fmt.Errorf("%w: %d symbol CRCs", ErrMalformed, len(table)/size)
	}
	var symbols []Symbol
	for ; len(table) >= size; table = table[size:] {
		name, _, ok := bytes.Cut(table[word:size], []byte{0})
		if !ok {
			return nil, fmt.Errorf("%w: symbol name without an end in %s", ErrMalformed, sectionCRCs)
		}
		crc := f.order.Uint32(table)
		if f.wide {
			crc = uint32(f.order.Uint64(table))
		}
		symbols = append(symbols, Symbol{Name: string(name), CRC: crc, HasCRC: true})
	}
	return symbols, nil
}

func (f *elfFile) extendedVersions(crcs, names []byte) ([]Symbol, error) {
	if len(crcs)/4 > maxLinkedSymbols {
		return nil, fmt.Errorf("%w: %d symbol CRCs", ErrMalformed, len(crcs)/4)
	}
	var symbols []Symbol
	rest := string(names)
	for ; len(crcs) >= 4; crcs = crcs[4:] {
		name, after, ok := strings.Cut(rest, "\x00")
		if !ok || len(name) > maxSymbolName {
			return nil, fmt.Errorf("%w: %s has fewer names than CRCs", ErrMalformed, sectionExtNames)
		}
		rest = after
		symbols = append(symbols, Symbol{Name: name, CRC: f.order.Uint32(crcs), HasCRC: true})
	}
	return symbols, nil
}
