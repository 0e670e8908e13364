// SPDX-License-Identifier: Apache-2.0

package paint

import (
	"bytes"
	"os"
	"testing"
)

func TestWhoGetsColours(t *testing.T) {
	cases := map[string]struct {
		env  map[string]string
		want bool
	}{
		"by default":         {want: true},
		"NO_COLOR":           {env: map[string]string{"NO_COLOR": "1"}},
		"a terminal for ink": {env: map[string]string{"TERM": "dumb"}},
	}
	for name, tc := range cases {
		if got := wanted(func(key string) string { return tc.env[key] }); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if For(file).on || For(&bytes.Buffer{}).on {
		t.Error("colours where nobody looks")
	}
	if got := (Painter{on: true}).Bad("x") + (Painter{}).Bad("x"); got != "\x1b[31mx\x1b[0mx" {
		t.Errorf("%q", got)
	}
}
