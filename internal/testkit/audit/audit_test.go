// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEnd(t *testing.T) {
	long := strings.Repeat("x", 200<<10) // more than one piece
	tests := map[string]struct {
		given string
		want  int
	}{
		"nothing":                      {"", 0},
		"whole lines":                  {"{}\n{}\n", 6},
		"a line that is being written": {"{}\n{\"verb\":\"wa", 3},
		"a long line":                  {"{}\n" + long, 3},
		"a first line":                 {long, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(test.given), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := End(path); err != nil || got != int64(test.want) {
				t.Errorf("the end is %d (%v), want %d", got, err, test.want)
			}
		})
	}
}

func TestOpenBeginsWithAWholeLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(`{"verb":"get"}` + "\n" + `{"verb":`)
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	write(`"list"}` + "\n")
	if got, err := log.Next(); err != nil || len(got) != 1 || got[0].Verb != "list" {
		t.Errorf("got %v (%v), want the list", got, err)
	}
}
