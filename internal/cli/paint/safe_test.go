// SPDX-License-Identifier: Apache-2.0

package paint

import (
	"fmt"
	"strings"
	"testing"
)

func TestSafe(t *testing.T) {
	p := Painter{on: true}
	for given, want := range map[string]string{
		p.Bad("Failed") + ": \x1b[2J\x1b[Hall is well": p.Bad("Failed") + ": ?[2J?[Hall is well",
		p.Strong("a") + "\n" + p.Faint("é…"):           p.Strong("a") + "\n" + p.Faint("é…"),
		"\x1b]0;title\a\x1b[8mhidden\u202e":            "?]0;title??[8mhidden?",
		"":                                             "",
	} {
		var b strings.Builder
		if n, err := fmt.Fprint(Safe(&b), given); n != len(given) || err != nil || b.String() != want {
			t.Errorf("%q: %q, %d, %v", given, b.String(), n, err)
		}
	}
	var b strings.Builder
	_, _ = fmt.Fprint(Raw(Safe(&b)), "\x1b[H")
	if b.String() != "\x1b[H" {
		t.Errorf("%q", b.String())
	}
}
