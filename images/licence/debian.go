// SPDX-License-Identifier: Apache-2.0

package licence

// Package is one of Debian's packages of which files are in an image of ours.
type Package struct {
	Name string
	// Licence of the files that are in the image, as the package's copyright file says it: more is in
	// the package, under other licences.
	Licence string
	// For says what needs it.
	For string
}

// Debian are the packages whose files the agent's image may hold: kmod and what it is linked with.
// images/kmod.lock says which versions.
var Debian = []Package{
	{"base-files", "GPL-2.0-or-later", "`os-release`, by which scanners of images know the distribution"},
	{"kmod", "GPL-2.0-or-later AND LGPL-2.1-or-later", "`modprobe`, for Modules with `modprobe.args` or `modprobe.rawArgs`"},
	{"libkmod2", "LGPL-2.1-or-later", "reads kernel modules and their indexes"},
	{"libc6", "LGPL-2.1-or-later", "the C library and the loader of programs"},
	{"liblzma5", publicDomain, "kernel modules that are compressed with xz"},
	{"libssl3", "Apache-2.0", "reads signatures of kernel modules"},
	{"libssl3t64", "Apache-2.0", "the same, in later releases of Debian"},
	{"libzstd1", "BSD-3-Clause OR GPL-2.0-only", "kernel modules that are compressed with zstd"},
	{"zlib1g", "Zlib", "kernel modules that are compressed with gzip, in other distributions"},
}

// OfDebian is the licence of a package of Debian's; empty if it is not among those that are known.
func OfDebian(name string) string {
	for _, known := range Debian {
		if known.Name == name {
			return known.Licence
		}
	}
	return ""
}
