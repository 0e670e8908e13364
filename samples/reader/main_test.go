// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestPrintAll(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"sample0": "zero\n", "sample1": "one\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		given   string
		pattern string
		want    string
		failure bool
	}{
		{given: "one device", pattern: "sample1", want: "one\n"},
		{given: "a pattern", pattern: "sample*", want: "zero\none\n"},
		{given: "a device that is not there", pattern: "sample2", failure: true},
		{given: "a pattern that cannot be parsed", pattern: "[", failure: true},
	} {
		var out bytes.Buffer
		err := printAll(&out, []string{filepath.Join(dir, test.pattern)})
		if (err != nil) != test.failure {
			t.Errorf("%s: error %v", test.given, err)
		}
		if out.String() != test.want {
			t.Errorf("%s: printed %q, want %q", test.given, out.String(), test.want)
		}
	}
}

func TestPrintAllEndsOnAnEndlessDevice(t *testing.T) {
	var out bytes.Buffer
	if err := printAll(&out, []string{"/dev/zero"}); err != nil {
		t.Fatal(err)
	}
	if out.Len() != limit {
		t.Errorf("printed %d bytes of /dev/zero, want %d", out.Len(), limit)
	}
}
