// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"slices"
	"strconv"
	"strings"
)

// SameValue tells whether a parameter that was set to want may show as shown, both as text; kind is
// its type as modpost writes it (see [Param]). The kernel takes numbers in three bases and booleans
// in many spellings, and shows each in one (kernel/params.c). Of types that a module makes itself,
// nothing is known: their values count as the same.
func SameValue(kind, want, shown string) bool {
	want = strings.TrimSuffix(strings.TrimPrefix(want, `"`), `"`)
	if of, array := strings.CutPrefix(kind, "array of "); array {
		return slices.EqualFunc(strings.Split(want, ","), strings.Split(shown, ","), func(a, b string) bool { return SameValue(of, a, b) })
	}
	switch kind {
	case "bool", "invbool", "bint":
		a, known := truth(want)
		b, knownToo := truth(shown)
		return !known || !knownToo || a == b
	case "byte", "short", "ushort", "int", "uint", "long", "ulong", "ullong", "hexint":
		a, known := number(want)
		b, knownToo := number(shown)
		return !known || !knownToo || a == b
	case "charp", "string":
		return want == shown
	}
	return true
}

// truth reads what kstrtobool and strtobool read. A boolean without a value is true.
func truth(text string) (value, known bool) {
	switch strings.ToLower(text) {
	case "", "1", "y", "t", "on", "yes", "true":
		return true, true
	case "0", "n", "f", "of", "off", "no", "false":
		return false, true
	}
	return false, false
}

// number is a number in the bits that it has, as kstrtoull reads one with base 0.
func number(text string) (value uint64, known bool) {
	digits, negative := strings.CutPrefix(strings.TrimPrefix(text, "+"), "-")
	base := 10
	switch {
	case strings.HasPrefix(strings.ToLower(digits), "0x"):
		base, digits = 16, digits[2:]
	case len(digits) > 1 && digits[0] == '0':
		base, digits = 8, digits[1:]
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if negative {
		n = -n
	}
	return n, err == nil
}
