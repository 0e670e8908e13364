// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRowsTellWhatIsProved(t *testing.T) {
	const makefile = "lint: bin/x\n"
	cases := map[string]struct {
		table, results string
		problems       int
		says           string
	}{
		"a done row with a passing test":    {"KM-01\tdone\ttest:TestA\n", `{"Action":"pass","Test":"TestA"}`, 0, "1 done"},
		"a done row whose test failed":      {"KM-01\tdone\ttest:TestA\n", `{"Action":"fail","Test":"TestA"}`, 1, "did not pass"},
		"a done row whose test was skipped": {"KM-01\tdone\ttest:TestA\n", `{"Action":"skip","Test":"TestA"}`, 1, "did not pass"},
		"a done row whose test never ran":   {"KM-01\tdone\ttest:TestB\n", `{"Action":"pass","Test":"TestA"}`, 1, "did not run"},
		"a test that passed here and failed there": {"KM-01\tdone\ttest:TestA\n", `{"Action":"fail","Test":"TestA"}` + "\n" +
			`{"Action":"pass","Test":"TestA"}`, 1, "did not pass"},
		"a file that is not there":       {"KM-01\tdone\tfile:no/such/file\n", "", 1, "is missing"},
		"a target that exists":           {"KM-01\tdone\tci:lint\n", "", 0, "1 done"},
		"a target that does not":         {"KM-01\tdone\tci:nope\n", "", 1, "no target"},
		"an open row":                    {"PT-B1\topen\tM5\n", "", 0, "missing: PT-B1"},
		"a superseded row":               {"KM-61\tsuperseded\tA-13\n", "", 0, "1 superseded"},
		"an open row that claims a test": {"KM-61\topen\ttest:TestA\n", "", 1, "does not fit"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, content string) string {
				p := filepath.Join(dir, name)
				if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				return p
			}
			var out bytes.Buffer
			problems, err := run(&out, write("rows.tsv", tc.table), write("results.json", tc.results), write("Makefile", makefile))
			if err != nil {
				t.Fatal(err)
			}
			if problems != tc.problems || !strings.Contains(out.String(), tc.says) {
				t.Errorf("problems = %d, want %d; output:\n%s", problems, tc.problems, out.String())
			}
		})
	}
}

func TestRowsRefuseAMalformedTable(t *testing.T) {
	for name, table := range map[string]string{
		"two columns": "KM-01\tdone\n",
		"no such ID":  "XX-01\tdone\ttest:TestA\n",
		"twice":       "KM-01\topen\tM2\nKM-01\topen\tM2\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "rows.tsv")
			if err := os.WriteFile(p, []byte(table), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readRows(p); err == nil {
				t.Error("accepted")
			}
		})
	}
}
