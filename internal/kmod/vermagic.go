// SPDX-License-Identifier: Apache-2.0

package kmod

import "strings"

// Vermagic is a module's vermagic string taken apart.
type Vermagic struct {
	// Release is the kernel release, "6.1.0-18-amd64".
	Release string
	// Flags are the build options that the kernel compares, "SMP", "preempt", "mod_unload", "modversions".
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

// CompatibleVermagic tells whether the kernel would accept a module with vermagic module while running has the vermagic
// of the running kernel (that of any module it was built with). As in the kernel's same_magic, strings must be equal;
// with symbol CRCs (hasCRCs, Info.HasCRCs) the release in front is left out of the comparison.
func CompatibleVermagic(module, running string, hasCRCs bool) bool {
	// Trailing blanks are an artefact of how the string is put together, and of who trimmed it on the way here.
	module, running = strings.TrimRight(module, " "), strings.TrimRight(running, " ")
	if hasCRCs {
		_, module, _ = strings.Cut(module, " ")
		_, running, _ = strings.Cut(running, " ")
	}
	return module == running
}
