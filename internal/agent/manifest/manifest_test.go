// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/manifest"
)

func TestParseTakesWhatExportWrites(t *testing.T) {
	want := manifest.Manifest{Schema: 1, Kernel: "6.1", Files: []manifest.Entry{
		{Path: "firmware/a b.bin", Size: 0, SHA256: strings.Repeat("0", 64)},
		{Path: "lib/modules/6.1/extra/x.ko.xz", Size: 9, SHA256: strings.Repeat("f", 64)},
	}}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifest.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	sum := strings.Repeat("a", 64)
	f.Add([]byte(`{"schema":1,"kernel":"6.1","files":[{"path":"lib/a.ko","size":1,"sha256":"` + sum + `"}]}`))
	f.Add([]byte(`{"schema":1,"files":[{"path":"../a","size":1,"sha256":"` + sum + `"}]}`))
	f.Add([]byte(`{"schema":1,"files":[{"path":"a","size":-1,"sha256":"` + sum + `"},{"path":"a"}]}`))
	f.Add([]byte(`{"schema":1,"files":[{"path":"a\u0000/b\\c"}]}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := manifest.Parse(data)
		if err != nil {
			return
		}
		if len(m.Files) > manifest.MaxFiles {
			t.Fatalf("%d files", len(m.Files))
		}
		seen := map[string]bool{}
		for _, e := range m.Files {
			if !fs.ValidPath(e.Path) || e.Path == "." || strings.ContainsAny(e.Path, "\\\x00\n") || e.Size < 0 || seen[e.Path] {
				t.Fatalf("accepted %+v", e)
			}
			seen[e.Path] = true
		}
	})
}

func FuzzParseFailure(f *testing.F) {
	f.Add([]byte(`{"reason":"ImageUnreadable","message":"x"}`))
	f.Add([]byte("{\"reason\":\"ImageTooLarge\",\"message\":\"\\u001b[2J\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		failure, err := manifest.ParseFailure(data)
		if err != nil {
			return
		}
		if len(failure.Message) > 2048 || !utf8.ValidString(failure.Message) || strings.ContainsAny(failure.Message, "\x1b\n\x00") {
			t.Fatalf("accepted message %q", failure.Message)
		}
	})
}
