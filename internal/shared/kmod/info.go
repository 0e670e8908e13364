// SPDX-License-Identifier: Apache-2.0

// Package kmod reads kernel modules and decides what must be loaded for one: the facts in a .ko
// file, an index of a lib/modules tree, and the load order over an image's and the host's tree. It
// is pure: files come through fs.FS, and it loads nothing.
package kmod

import (
	"bytes"
	"fmt"
	"strings"
)

// Info are the facts in a .ko file. Names of modules are normalised (see NormalizeName).
type Info struct {
	// Name is the module's name; empty for files of kernels before 4.x, which do not carry it.
	Name string
	// BuildID is the GNU build ID in hex, the module's identity; empty when the linker wrote none.
	BuildID string
	// SrcVersion is the hash of the sources that modpost wrote; many builds have none.
	SrcVersion string
	// Vermagic is the string that the kernel compares with its own.
	Vermagic string
	// Version is MODULE_VERSION.
	Version string
	// License is MODULE_LICENSE; the last one when there are several.
	License string
	// Depends are the modules whose symbols this one uses, in the file's order.
	Depends []string
	// SoftdepPre and SoftdepPost are modules, or their aliases, to load before and after.
	SoftdepPre, SoftdepPost []string
	// Firmware are the names that the module may request, relative to the firmware directories.
	Firmware []string
	// Params are the module's parameters in the order of their types in the file.
	Params []Param
	// InTree is true for modules built from the kernel's own sources.
	InTree bool
	// Machine is the ELF machine (EM_X86_64 is 62, EM_AARCH64 183).
	Machine uint16
	// HasCRCs is true when the file carries symbol CRCs (CONFIG_MODVERSIONS); the kernel then
	// ignores the release in vermagic.
	HasCRCs bool
	// Signed is true when anybody's signature is appended.
	Signed bool
}

// Param is one module parameter.
type Param struct {
	// Name as written in the source.
	Name string
	// Type as modpost wrote it ("int", "charp", "array of uint", …); empty when unknown.
	Type string
	// Desc is MODULE_PARM_DESC; may be empty.
	Desc string
}

// NormalizeName makes a module's name comparable: the kernel and its tools treat "-" and "_" alike.
func NormalizeName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Bounds of a .modinfo section. Large modules have a few thousand aliases, less than 1 MiB.
const (
	maxModinfo        = 4 << 20
	maxModinfoEntries = 1 << 17
	maxModinfoEntry   = 64 << 10
)

// parseModinfo reads NUL-separated key=value entries.
func (info *Info) parseModinfo(section []byte) error {
	params := paramList{index: map[string]int{}}
	softdeps := 0
	if len(section) > maxModinfo {
		return fmt.Errorf("%w: .modinfo has %d bytes, at most %d are read", ErrMalformed, len(section), maxModinfo)
	}
	for entries := 0; len(section) > 0; {
		var raw []byte
		raw, section, _ = bytes.Cut(section, []byte{0})
		if len(raw) == 0 {
			continue // padding
		}
		entry := string(raw) // a copy, which keeps nothing else alive
		if entries++; entries > maxModinfoEntries || len(entry) > maxModinfoEntry {
			return fmt.Errorf("%w: .modinfo is out of bounds", ErrMalformed)
		}
		key, value, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("%w: .modinfo entry without '='", ErrMalformed)
		}
		if key == "softdep" {
			if softdeps++; softdeps > 1 {
				continue // of several (btrfs, ksmbd), modprobe takes the first
			}
		}
		info.set(key, value, &params)
	}
	info.Params = params.list
	return nil
}

func (info *Info) set(key, value string, params *paramList) {
	switch key {
	case "name":
		info.Name = NormalizeName(value)
	case "srcversion":
		info.SrcVersion = value
	case "vermagic":
		info.Vermagic = value
	case "version":
		info.Version = value
	case "license":
		info.License = value
	case "intree":
		info.InTree = value == "Y"
	case "firmware":
		info.Firmware = append(info.Firmware, value)
	case "depends":
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); name != "" {
				info.Depends = append(info.Depends, NormalizeName(name))
			}
		}
	case "softdep":
		info.addSoftdep(value)
	case "parmtype":
		name, kind, _ := strings.Cut(value, ":")
		params.at(name).Type = kind
	case "parm":
		name, desc, _ := strings.Cut(value, ":")
		params.at(name).Desc = desc
	}
}

// addSoftdep reads "pre: a b post: c", MODULE_SOFTDEP's argument. As in modprobe, names before the
// first of these words (cifs has some) mean nothing.
func (info *Info) addSoftdep(value string) {
	var into *[]string
	for word := range strings.FieldsSeq(value) {
		switch {
		case word == "pre:":
			into = &info.SoftdepPre
		case word == "post:":
			into = &info.SoftdepPost
		case into != nil:
			*into = append(*into, NormalizeName(word))
		}
	}
}

// paramList keeps parameters in the order in which they were first seen.
type paramList struct {
	list  []Param
	index map[string]int
}

func (p *paramList) at(name string) *Param {
	at, ok := p.index[name]
	if !ok {
		at = len(p.list)
		p.index[name] = at
		p.list = append(p.list, Param{Name: name})
	}
	return &p.list[at]
}

// Vermagic is a module's vermagic string taken apart.
type Vermagic struct {
	// Release is the kernel release, "6.1.0-18-amd64".
	Release string
	// Flags are the build options that the kernel compares, such as "SMP" and "mod_unload".
	Flags []string
}

// ParseVermagic splits a vermagic string; it never fails, an empty string gives an empty Vermagic.
func ParseVermagic(s string) Vermagic {
	release, flags, _ := strings.Cut(strings.TrimRight(s, " "), " ")
	v := Vermagic{Release: release}
	if fields := strings.Fields(flags); len(fields) > 0 {
		v.Flags = fields
	}
	return v
}

// CompatibleVermagic reports whether a kernel accepts a module's vermagic; running is that of any
// module built with the kernel. As in the kernel's same_magic, strings must be equal; with symbol
// CRCs (hasCRCs, Info.HasCRCs) the release in front is not compared.
func CompatibleVermagic(module, running string, hasCRCs bool) bool {
	// Trailing blanks are an artefact of how the string is made and trimmed.
	module, running = strings.TrimRight(module, " "), strings.TrimRight(running, " ")
	if hasCRCs {
		_, module, _ = strings.Cut(module, " ")
		_, running, _ = strings.Cut(running, " ")
	}
	return module == running
}
