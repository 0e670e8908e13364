// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// cmdlineParams are a module's parameters on the kernel's command line (module.name=value), in
// order. The kernel itself heeds them for what is built in; for what is loaded, modprobe(8) passes
// them on, before those of its own command line, which therefore count more.
//
// A value with blanks is quoted, as in module.name="a b" or "module.name=a b", which is what boot
// loaders make of it.
func cmdlineParams(line, module string) []string {
	module = kmod.NormalizeName(module)
	var params []string
	for _, word := range cmdlineWords(line) {
		of, param, ok := strings.Cut(word, ".")
		name, value, valued := strings.Cut(param, "=")
		if !ok || name == "" || strings.ContainsAny(of, `="`) || strings.ContainsAny(name, `."`) || kmod.NormalizeName(of) != module {
			continue
		}
		if valued {
			name += "=" + value
		}
		params = append(params, name)
	}
	return params
}

// cmdlineWords cuts the line at blanks that are not quoted. A word that is quoted as a whole loses
// its quotes, and its value has them instead.
func cmdlineWords(line string) []string {
	quoted := false
	words := strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && strings.ContainsRune(" \t\n\v\f\r", r)
	})
	for i, word := range words {
		if inner, ok := strings.CutPrefix(word, `"`); ok {
			inner = strings.TrimSuffix(inner, `"`)
			name, value, valued := strings.Cut(inner, "=")
			if valued {
				inner = name + `="` + value + `"`
			}
			words[i] = inner
		}
	}
	return slices.DeleteFunc(words, func(word string) bool { return word == "" })
}
