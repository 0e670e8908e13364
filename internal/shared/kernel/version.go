// SPDX-License-Identifier: Apache-2.0

// Package kernel turns a node's kernel version into facts: its parts, the template variables of
// image references, and the kernel mapping of a Module that applies. It is pure: no I/O, no clock.
package kernel

import (
	"regexp"
	"strings"
)

// Version is the parts of a kernel version as the kubelet reports it. Missing parts are empty.
type Version struct {
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

// SameVersion compares releases as KMM does: a trailing "+" does not count.
func SameVersion(a, b string) bool { return Trim(a) == Trim(b) }

// Shapes of kernel versions and of their parts.
var (
	// numbers are X.Y.Z and what follows.
	numbers = regexp.MustCompile(`(?s)^([0-9]+)\.([0-9]+)\.([0-9]+)(.*)$`)
	// rhel is "-RELEASE.ARCH[+VARIANT]", for example "-348.23.1.el8_5.x86_64" or
	// "-503.11.1.el9_5.aarch64+64k", where distTag finds a component of RELEASE.
	rhel    = regexp.MustCompile(`(?s)^-([^+]*)\.([^.+]+)(?:\+.*)?$`)
	distTag = regexp.MustCompile(`\.(el[0-9][^.]*)`)
	// abi is "13", "060500", "0.bpo.5" or "0.deb11.13", and not others' dotted releases.
	abi = regexp.MustCompile(`^[0-9]+(?:$|\.bpo\.|\.deb)`)
	// unclean is a character, not a byte, that an image tag may not hold.
	unclean = regexp.MustCompile(`[^A-Za-z0-9._-]`)
)

// Parse takes a kernel version apart. It never fails: missing parts stay empty.
func Parse(version string) Version {
	v := Version{Full: version}
	parts := numbers.FindStringSubmatch(Trim(version))
	if parts == nil {
		return v
	}
	v.X, v.Y, v.Z = parts[1], parts[2], parts[3]
	v.XYZ = v.X + "." + v.Y + "." + v.Z
	if parts := rhel.FindStringSubmatch(parts[4]); parts != nil {
		if tag := distTag.FindStringSubmatch(parts[1]); tag != nil {
			v.RHELVersion, v.RHELRelease, v.RHELArch = tag[1], parts[1], parts[2]
			return v
		}
	}
	v.debian(parts[4])
	return v
}

// TagSafe is the version for image references: without the trailing "+", and with every character
// outside [A-Za-z0-9-._] replaced by "_".
func (v Version) TagSafe() Version {
	v.Full = clean(Trim(v.Full))
	for _, part := range []*string{&v.RHELVersion, &v.RHELRelease, &v.RHELArch, &v.DebianRelease, &v.DebianFlavor} {
		*part = clean(*part)
	}
	return v
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
	if release, flavor, ok := strings.Cut(rest, "-"); ok && abi.MatchString(release) && isFlavor(flavor) {
		v.DebianRelease, v.DebianFlavor = release, flavor
		return
	}
	if isDebianFlavor(rest) {
		v.DebianRelease, v.DebianFlavor = v.Z, clean(rest)
	}
}

// isFlavor refuses numbers, and the kernels of openSUSE, Alpine and Arch.
func isFlavor(flavor string) bool {
	switch flavor {
	case "", "default", "lts", "virt", "MANJARO":
		return false
	}
	return strings.Trim(flavor, "0123456789") != ""
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

func clean(s string) string { return unclean.ReplaceAllString(s, "_") }
