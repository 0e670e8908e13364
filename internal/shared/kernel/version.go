// SPDX-License-Identifier: Apache-2.0

// Package kernel turns a node's kernel version into facts: its parts, the template variables of
// image references, and the kernel mapping of a Module that applies. It is pure: no I/O, no clock.
package kernel

import "strings"

// Version is the parts of a kernel version as the kubelet reports it. Missing parts are empty.
type Version struct {
	// Raw is the string that was parsed, without a trailing "+".
	Raw string
	// Full is what `uname -r` prints, or after [Version.TagSafe] what an image tag may hold.
	Full string
	// XYZ is "X.Y.Z"; X, Y and Z are its numbers. All are empty unless the version starts so.
	XYZ, X, Y, Z string

	// RHEL parts are those of kernels with an ".elN" tag, such as those of RHEL and CentOS Stream.
	RHELVersion, RHELRelease, RHELArch string

	// DebianRelease and DebianFlavor are those of kernels X.Y.Z-RELEASE-FLAVOR, of Debian and of
	// Ubuntu, which the version alone cannot tell apart.
	DebianRelease, DebianFlavor string
}

// Trim removes one trailing "+", the kernel's mark for a modified source tree, in which node and
// image may differ. Compare kernel versions trimmed.
func Trim(version string) string { return strings.TrimSuffix(version, "+") }

// Normalize trims a version and replaces every character outside [A-Za-z0-9-._] by "_".
func Normalize(version string) string { return clean(Trim(version)) }

// Parse takes a kernel version apart. It never fails: missing parts stay empty.
func Parse(version string) Version {
	v := Version{Raw: Trim(version), Full: version}
	rest, ok := v.numbers()
	if !ok {
		return v
	}
	if !v.rhel(rest) {
		v.debian(rest)
	}
	return v
}

// TagSafe is the version for image references: without the trailing "+", and with every character
// outside [A-Za-z0-9-._] replaced by "_".
func (v Version) TagSafe() Version {
	v.Full = Normalize(v.Full)
	for _, part := range []*string{&v.RHELVersion, &v.RHELRelease, &v.RHELArch, &v.DebianRelease, &v.DebianFlavor} {
		*part = clean(*part)
	}
	return v
}

// numbers fills X, Y, Z and XYZ and returns what follows Z.
func (v *Version) numbers() (rest string, ok bool) {
	x, rest := digits(v.Raw)
	rest, dotX := strings.CutPrefix(rest, ".")
	y, rest := digits(rest)
	rest, dotY := strings.CutPrefix(rest, ".")
	z, rest := digits(rest)
	if x == "" || y == "" || z == "" || !dotX || !dotY {
		return "", false
	}
	v.X, v.Y, v.Z = x, y, z
	v.XYZ = v.Raw[:len(x)+len(y)+len(z)+2]
	return rest, true
}

// rhel reads "-RELEASE.ARCH[+VARIANT]" where RELEASE holds the component ".elN…",
// for example "-348.23.1.el8_5.x86_64" or "-503.11.1.el9_5.aarch64+64k".
func (v *Version) rhel(rest string) bool {
	rest, ok := strings.CutPrefix(rest, "-")
	if !ok {
		return false
	}
	rest, _, _ = strings.Cut(rest, "+")
	dot := strings.LastIndexByte(rest, '.')
	if dot < 0 {
		return false
	}
	release, arch := rest[:dot], rest[dot+1:]
	tag := distTag(release)
	if tag == "" || arch == "" {
		return false
	}
	v.RHELVersion, v.RHELRelease, v.RHELArch = tag, release, arch
	return true
}

// distTag returns the component of a dotted release that starts with "el" and a digit.
func distTag(release string) string {
	for at := strings.Index(release, ".el"); at >= 0; {
		tag, _, _ := strings.Cut(release[at+1:], ".")
		if len(tag) > 2 && isDigit(tag[2]) {
			return tag
		}
		next := strings.Index(release[at+1:], ".el")
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return ""
}

// debian reads the shapes that Debian and Ubuntu give their kernels:
//
//	5.10.0-13-cloud-amd64      → 13, cloud-amd64            (an ABI number)
//	6.1.0-0.deb11.13-amd64     → 0.deb11.13, amd64          (backports, with an ABI number)
//	6.12.115+deb12-amd64       → 115+deb12, amd64           (since 2024 the ABI is the upstream version and a suffix;
//	6.9.7+bpo-amd64            → 7+bpo, amd64                the release is what changes with every ABI within X.Y)
//	6.12.9-amd64               → 9, amd64                   (the same without a suffix; only with a Debian architecture)
func (v *Version) debian(rest string) {
	if suffix, flavor, ok := strings.Cut(rest, "-"); ok && suffix != "" {
		if flavor != "" && (strings.HasPrefix(suffix, "+deb") || strings.HasPrefix(suffix, "+bpo")) {
			v.DebianRelease, v.DebianFlavor = v.Z+suffix, flavor
		}
		return
	}
	rest, ok := strings.CutPrefix(rest, "-")
	if !ok {
		return
	}
	if release, flavor, ok := strings.Cut(rest, "-"); ok && isABI(release) && isFlavor(flavor) {
		v.DebianRelease, v.DebianFlavor = release, flavor
		return
	}
	if isDebianFlavor(rest) {
		v.DebianRelease, v.DebianFlavor = v.Z, clean(rest)
	}
}

// isABI accepts "13", "060500", "0.bpo.5" and "0.deb11.13", not others' dotted releases.
func isABI(release string) bool {
	number, rest := digits(release)
	if number == "" {
		return false
	}
	return rest == "" || strings.HasPrefix(rest, ".bpo.") || strings.HasPrefix(rest, ".deb")
}

// isFlavor refuses numbers, and the kernels of openSUSE, Alpine and Arch.
func isFlavor(flavor string) bool {
	switch flavor {
	case "", "default", "lts", "virt", "MANJARO":
		return false
	}
	return !allDigits(flavor)
}

// isDebianFlavor reports whether one part of the flavor is an architecture of Debian's kernels.
func isDebianFlavor(flavor string) bool {
	for part := range strings.SplitSeq(flavor, "-") {
		switch part {
		case "amd64", "arm64", "armmp", "686", "powerpc64le", "riscv64", "s390x", "loong64":
			return true
		}
	}
	return false
}

func digits(s string) (number, rest string) {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return s[:n], s[n:]
}

func allDigits(s string) bool {
	_, rest := digits(s)
	return rest == ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// clean replaces every character, not byte, that an image tag may not hold by one "_".
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unclean(r) {
			return '_'
		}
		return r
	}, s)
}

func unclean(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_':
		return false
	}
	return true
}
