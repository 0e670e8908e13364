// SPDX-License-Identifier: Apache-2.0

package licence

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// isc is a short licence as SPDX knows it.
const isc = `Copyright (c) 2026 Somebody

Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES
WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR
ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN
ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF
OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`

func apache(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestOf(t *testing.T) {
	for _, test := range []struct {
		given string
		files map[string]string
		want  string
		fails error
	}{
		{"one licence", map[string]string{"LICENSE": isc, "main.go": "package main"}, "ISC", nil},
		{"two files, both apply", map[string]string{"LICENSE": apache(t), "COPYING.md": isc}, "Apache-2.0 AND ISC", nil},
		{"two texts in one file", map[string]string{"LICENSE.txt": apache(t) + "\n\n" + isc}, "Apache-2.0 AND ISC", nil},
		{"no file", map[string]string{"README": isc}, "", ErrNone},
		{"sources whose name says licence", map[string]string{"license.go": "package license"}, "", ErrNone},
		{"words of no known licence", map[string]string{"LICENSE": "You may look at this, and do nothing else with it."}, "", ErrNone},
		{"a known text with restrictions", map[string]string{
			"LICENSE": isc + strings.Repeat("You must not use it for anything useful. ", 40),
		}, "", ErrNone},
		{"a second file of no known licence", map[string]string{"LICENSE": isc, "LICENSE.extra": "Ask first."}, "", ErrNone},
	} {
		dir := t.TempDir()
		for name, text := range test.files {
			write(t, filepath.Join(dir, name), text)
		}
		if got, err := Of(dir); got != test.want || !errors.Is(err, test.fails) {
			t.Errorf("%s: %q, %v, want %q, %v", test.given, got, err, test.want, test.fails)
		}
	}
}

func TestAllowed(t *testing.T) {
	for expression, want := range map[string]error{
		"Apache-2.0":                 nil,
		"Apache-2.0 AND MIT":         nil,
		"GPL-3.0-only":               ErrNotAllowed,
		"MIT AND AGPL-3.0-or-later":  ErrNotAllowed,
		"Apache-2.0 OR GPL-2.0-only": ErrNotAllowed, // OR leaves a choice, and Allowed makes none
		"":                           ErrNotAllowed,
	} {
		if err := Allowed(expression); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", expression, err, want)
		}
	}
}

// TestSources: a module's licence is found where Go has compiled it from, by what go.mod says.
func TestSources(t *testing.T) {
	t.Setenv("GOMODCACHE", t.TempDir())
	repository := t.TempDir()
	write(t, filepath.Join(os.Getenv("GOMODCACHE"), "example.com", "!big@v1.0.0", "LICENSE"), isc)
	write(t, filepath.Join(repository, "LICENSE"), apache(t))
	cached, err := FindSources(t.Context(), repository)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := cached.Module("example.com/Big", "v1.0.0"); id != "ISC" || err != nil {
		t.Errorf("module in the cache: %q, %v", id, err)
	}
	if id, err := cached.Own(); id != "Apache-2.0" || err != nil {
		t.Errorf("the repository: %q, %v", id, err)
	}
	if _, err := cached.Module("example.com/Big", "v1.1.0"); err == nil {
		t.Error("a version that is not there has a licence")
	}
	write(t, filepath.Join(repository, "vendor", "modules.txt"), "")
	write(t, filepath.Join(repository, "vendor", "example.com", "Big", "LICENSE"), apache(t))
	vendored, err := FindSources(t.Context(), repository)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := vendored.Module("example.com/Big", "v1.0.0"); id != "Apache-2.0" || err != nil {
		t.Errorf("module in vendor: %q, %v", id, err)
	}
}
