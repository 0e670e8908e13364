// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTableOfNumbers reads the real table, from the directory that it names its documents from.
func TestTableOfNumbers(t *testing.T) {
	t.Chdir("../..")
	content, err := os.ReadFile("test/conformance/numbers.tsv")
	if err != nil {
		t.Fatal(err)
	}
	table := string(content)
	if _, err := parse(table); err != nil {
		t.Error(err)
	}
	for name, broken := range map[string]string{
		"a number is missing":      strings.Replace(table, "\n1\t", "\n#1\t", 1),
		"a number is there twice":  strings.Replace(table, "\n2\t", "\n1\t", 1),
		"an unknown state":         strings.Replace(table, "\ttest\t", "\tsome day\t", 1),
		"no milestone":             strings.Replace(table, "\tlater M", "\tlater ", 1),
		"no document":              strings.Replace(table, "\tdeviates docs/", "\tdeviates no-docs/", 1),
		"a document without a row": strings.Replace(table, "\n1\ttest\t", "\n1\tdeviates README.md\t", 1),
	} {
		if _, err := parse(broken); err == nil || broken == table {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestJudge(t *testing.T) {
	numbers := []number{{n: 1, state: stateTest, title: "a"}, {n: 2, state: stateLater, detail: "M4", title: "b"},
		{n: 3, state: stateDeviates, detail: "d", title: "c"}}
	cases := map[string]struct {
		given map[int]tally
		then  string
		fails bool
	}{
		"all is well": {given: map[int]tally{1: {passed: 2}, 0: {passed: 1}},
			then: `{"passed":1,"failed":0,"later":[2],"deviates":[3],"numbers":3,"others":1}`},
		"a test fails": {given: map[int]tally{1: {passed: 1, failed: 1}},
			then: `{"passed":0,"failed":1,"later":[2],"deviates":[3],"numbers":3,"others":0}`, fails: true},
		"a test is left out": {given: map[int]tally{1: {skipped: 1}},
			then: `{"passed":0,"failed":1,"later":[2],"deviates":[3],"numbers":3,"others":0}`, fails: true},
		"no test": {then: `{"passed":0,"failed":1,"later":[2],"deviates":[3],"numbers":3,"others":0}`, fails: true},
		"later has a test": {given: map[int]tally{1: {passed: 1}, 2: {passed: 1}},
			then: `{"passed":1,"failed":1,"later":[],"deviates":[3],"numbers":3,"others":0}`, fails: true},
		"what is owed fails": {given: map[int]tally{1: {passed: 1}, 3: {failed: 1}},
			then: `{"passed":1,"failed":1,"later":[2],"deviates":[],"numbers":3,"others":0}`, fails: true},
		"another test fails": {given: map[int]tally{1: {passed: 1}, 0: {failed: 1}},
			then: `{"passed":1,"failed":1,"later":[2],"deviates":[3],"numbers":3,"others":0}`, fails: true},
		"a number of nowhere": {given: map[int]tally{1: {passed: 1}, 9: {passed: 1}},
			then: `{"passed":1,"failed":1,"later":[2],"deviates":[3],"numbers":3,"others":0}`, fails: true},
		"not the whole number": {given: map[int]tally{1: {passed: 1}},
			then: `{"passed":1,"failed":0,"later":[2],"deviates":[3],"numbers":3,"others":0}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := judge(&out, numbers, tc.given, false); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			_, got, _ := strings.Cut(out.String(), "RESULT ")
			if diff := cmp.Diff(tc.then, strings.TrimSpace(got)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
	if err := judge(&bytes.Buffer{}, numbers, map[int]tally{1: {passed: 1}}, true); err == nil {
		t.Error("three numbers were taken for all")
	}
}

func TestFollow(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"output","Output":"starting\n"}`,
		`{"Action":"output","Test":"TestConformance/1_a","Output":"why\n"}`,
		`{"Action":"fail","Test":"TestConformance/1_a"}`,
		`{"Action":"pass","Test":"TestConformance/1_b"}`,
		`{"Action":"output","Test":"TestConformance/12_c","Output":"quiet\n"}`,
		`{"Action":"pass","Test":"TestConformance/12_c/deeper"}`,
		`{"Action":"pass","Test":"TestConformance/12_c"}`,
		`{"Action":"fail","Test":"TestConformance"}`,
		`{"Action":"pass","Test":"TestClients/one"}`,
		`{"Action":"pass","Test":"TestClients"}`,
	}, "\n")
	var out bytes.Buffer
	got, err := follow(strings.NewReader(in), &out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]tally{1: {passed: 1, failed: 1}, 12: {passed: 1}, 0: {passed: 1}}, got,
		cmp.AllowUnexported(tally{})); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if out.String() != "starting\nwhy\n" {
		t.Errorf("printed %q", out.String())
	}
}
