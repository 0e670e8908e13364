// SPDX-License-Identifier: Apache-2.0

// Package synth makes kernel module files that every reader of modules accepts (modinfo, depmod,
// readelf, ours) and no kernel runs: they have the facts of a module and no code. Fake kernels and
// tests use them in place of a compiler.
package synth

import (
	"crypto/sha1" //nolint:gosec // a GNU build ID is a SHA-1 by format; nothing is protected by it
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// ELF machines, for Module.Machine.
const (
	MachineX86_64  uint16 = 62
	MachineAArch64 uint16 = 183
)

// Module describes a module file. Only Name is required.
type Module struct {
	// Name of the module; also its "name" in .modinfo, with "-" as "_".
	Name string
	// Vermagic defaults to none: a real kernel would refuse it.
	Vermagic string
	// BuildID in hex. Empty: a SHA-1 of everything else here, so that equal descriptions give equal
	// files.
	BuildID string
	// NoBuildID leaves the note out.
	NoBuildID bool

	SrcVersion string
	Version    string
	// License defaults to "GPL".
	License string
	// Depends are the names in .modinfo. Readers that look at symbols (depmod) see Imports instead.
	Depends                 []string
	SoftdepPre, SoftdepPost []string
	Aliases                 []string
	Firmware                []string
	Params                  []kmod.Param
	ImportNS                []string
	InTree                  bool

	// Exports and Imports are symbols.
	Exports, Imports []string
	// WeakImports are symbols that the module can do without.
	WeakImports []string
	// ModVersions gives each symbol a CRC and writes __versions.
	ModVersions bool
	// ExtendedModVersions writes the table of Linux 6.14 as well; only with ModVersions.
	ExtendedModVersions bool
	// CRCs of symbols; others get a checksum of their name.
	CRCs map[string]uint32
	// Signed appends a signature block with an empty signature: readers see it, no kernel accepts it.
	Signed bool
	// Machine is the ELF machine; default MachineX86_64. All are written as 64-bit little-endian.
	Machine uint16
	// Padding adds so many zero bytes of content, to make a file as large as a real one.
	Padding int
}

// Bytes returns the file. It panics only on a BuildID that is not hex, a mistake in the calling
// code.
func (m Module) Bytes() []byte {
	file := m.object()
	if m.Signed {
		file = AppendSignature(file, nil)
	}
	return file
}

func (m Module) object() []byte {
	if m.Machine == 0 {
		m.Machine = MachineX86_64
	}
	w := newObject(m.Machine)
	modinfo := m.modinfo()
	w.section(".modinfo", typeProgBits, flagAlloc, []byte(modinfo))
	w.section(".text", typeProgBits, flagAlloc|flagExec, nil)
	if m.Padding > 0 {
		w.section(".rodata", typeProgBits, flagAlloc, make([]byte, m.Padding))
	}
	if !m.NoBuildID {
		w.section(".note.gnu.build-id", typeNote, flagAlloc, m.note(modinfo))
	}
	if m.ModVersions {
		w.section("__versions", typeProgBits, flagAlloc, m.versions())
		if m.ExtendedModVersions {
			crcs, names := m.extendedVersions()
			w.section("__version_ext_crcs", typeProgBits, flagAlloc, crcs)
			w.section("__version_ext_names", typeProgBits, flagAlloc, names)
		}
	}
	if len(m.Exports) > 0 {
		w.section("__ksymtab_strings", typeProgBits, flagAlloc, []byte(strings.Join(m.Exports, "\x00")+"\x00"))
	}
	w.section(".gnu.linkonce.this_module", typeProgBits, flagAlloc|flagWrite, thisModule(kmod.NormalizeName(m.Name)))
	for _, name := range m.Exports {
		w.symbol("__ksymtab_"+name, w.index("__ksymtab_strings"), 0)
		if m.ModVersions {
			w.symbol("__crc_"+name, sectionAbsolute, uint64(m.crc(name)))
		}
	}
	for _, name := range m.Imports {
		w.symbol(name, sectionUndefined, 0)
	}
	for _, name := range m.WeakImports {
		w.weak(name)
	}
	return w.bytes()
}

func (m Module) modinfo() string {
	var b strings.Builder
	entry := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s\x00", key, value)
		}
	}
	entry("version", m.Version)
	license := m.License
	if license == "" {
		license = "GPL"
	}
	entry("license", license)
	for _, alias := range m.Aliases {
		entry("alias", alias)
	}
	for _, firmware := range m.Firmware {
		entry("firmware", firmware)
	}
	entry("softdep", softdep(m.SoftdepPre, m.SoftdepPost))
	for _, p := range m.Params {
		if p.Type != "" {
			entry("parmtype", p.Name+":"+p.Type)
		}
		entry("parm", p.Name+":"+p.Desc)
	}
	for _, namespace := range m.ImportNS {
		entry("import_ns", namespace)
	}
	entry("srcversion", m.SrcVersion)
	b.WriteString("depends=" + strings.Join(m.Depends, ",") + "\x00")
	if m.InTree {
		entry("intree", "Y")
	}
	entry("name", kmod.NormalizeName(m.Name))
	entry("vermagic", m.Vermagic)
	return b.String()
}

func softdep(pre, post []string) string {
	var words []string
	if len(pre) > 0 {
		words = append(append(words, "pre:"), pre...)
	}
	if len(post) > 0 {
		words = append(append(words, "post:"), post...)
	}
	return strings.Join(words, " ")
}

// note is an ELF note of type NT_GNU_BUILD_ID.
func (m Module) note(modinfo string) []byte {
	id, err := hex.DecodeString(m.BuildID)
	if err != nil {
		panic(fmt.Sprintf("synth: build ID %q: %v", m.BuildID, err))
	}
	if len(id) == 0 {
		all := fmt.Appendf(nil, "%s\x00%q\x00%q\x00%d\x00%d", modinfo, m.Exports, m.Imports, m.Machine, m.Padding)
		if len(m.WeakImports)+len(m.CRCs) > 0 {
			all = fmt.Appendf(all, "\x00%q\x00%v", m.WeakImports, m.CRCs)
		}
		sum := sha1.Sum(all) //nolint:gosec // see above
		id = sum[:]
	}
	note := binary.LittleEndian.AppendUint32(nil, 4)
	note = binary.LittleEndian.AppendUint32(note, uint32(len(id)))
	note = binary.LittleEndian.AppendUint32(note, 3)
	note = append(note, "GNU\x00"...)
	note = append(note, id...)
	return append(note, make([]byte, -len(id)&3)...)
}

// versions is an array of struct modversion_info: 8 bytes of CRC, 56 of name.
func (m Module) versions() []byte {
	var table []byte
	for _, name := range m.versioned() {
		var entry [64]byte
		binary.LittleEndian.PutUint64(entry[:], uint64(m.crc(name)))
		copy(entry[8:63], name)
		table = append(table, entry[:]...)
	}
	return table
}

func (m Module) versioned() []string {
	return slices.Concat([]string{"module_layout"}, m.Imports, m.WeakImports)
}

// extendedVersions are CRCs of 4 bytes, and names that end in NUL, in the same order.
func (m Module) extendedVersions() (crcs, names []byte) {
	for _, name := range m.versioned() {
		crcs = binary.LittleEndian.AppendUint32(crcs, m.crc(name))
		names = append(append(names, name...), 0)
	}
	return crcs, names
}

func (m Module) crc(name string) uint32 {
	if crc, ok := m.CRCs[name]; ok {
		return crc
	}
	return crc32.ChecksumIEEE([]byte(name))
}

// thisModule imitates the start of struct module: the name stands 24 bytes in.
func thisModule(name string) []byte {
	content := make([]byte, 512)
	copy(content[24:24+55], name)
	return content
}
