// SPDX-License-Identifier: Apache-2.0

package reasons

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const page = "../../../docs/reference/reasons.md"

// update writes the page: go test ./internal/shared/reasons -update
var update = flag.Bool("update", false, "write the tables of docs/reference/reasons.md")

// TestEveryReasonHasOneRow: the set is that of the API.
func TestEveryReasonHasOneRow(t *testing.T) {
	code, err := os.ReadFile("../../../api/kmm/v1beta1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared, rows []string
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		declared = append(declared, m[1])
	}
	for _, r := range slices.Concat(well, attention) {
		rows = append(rows, r.Name)
		if r.Meaning == "" || r.Class != ClassFine && r.Next == "" {
			t.Errorf("%s has no meaning or no next step", r.Name)
		}
	}
	slices.Sort(declared)
	slices.Sort(rows)
	if diff := cmp.Diff(declared, rows); diff != "" || len(rows) < 20 {
		t.Errorf("reasons in conditions.go (-) and rows (+) differ:\n%s", diff)
	}
}

// TestClasses: what the classes mean for those who ask.
func TestClasses(t *testing.T) {
	type answer struct {
		Patience, OnItsWay, Expected, Final bool
		Rank                                int
	}
	for name, want := range map[string]answer{
		v1beta1.ReasonReady:           {},
		v1beta1.ReasonRollingOut:      {Patience: true, OnItsWay: true, Expected: true, Rank: RankTurn},
		v1beta1.ReasonLoading:         {Patience: true, OnItsWay: true, Expected: true, Rank: RankUnderway},
		v1beta1.ReasonDevicesPending:  {Patience: true, Expected: true},
		v1beta1.ReasonPaused:          {Patience: true, Rank: 1},
		v1beta1.ReasonImageNotFound:   {},
		v1beta1.ReasonNodeNotReady:    {Rank: 2},
		v1beta1.ReasonNoKernelMapping: {Final: true},
		"Invented":                    {},
	} {
		got := answer{Patience(name), OnItsWay(name), Expected(name), Final(name), Rank(name)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if next := Next(v1beta1.ReasonImageNotFound); next != "push the image, or correct containerImage" {
		t.Errorf("next step: %q", next)
	}
	if Next(v1beta1.ReasonReady) != "" || Next("Invented") != "" || Known("Invented") || Step("Invented") != "" {
		t.Error("there is something to do about what is well, or about nothing")
	}
}

// TestThePageIsMadeOfTheRows.
func TestThePageIsMadeOfTheRows(t *testing.T) {
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := fill(fill(string(have), "| reason | meaning | next step |\n|---|---|---|\n", well),
		"| reason | final | meaning | next step |\n|---|---|---|---|\n", attention)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(have), want); diff != "" {
		t.Errorf("the page (-) is not made of the rows (+): go test ./internal/shared/reasons -update\n%s", diff)
	}
}

// fill replaces the rows of the table that begins with head.
func fill(text, head string, rows []Reason) string {
	before, after, _ := strings.Cut(text, head)
	for strings.HasPrefix(after, "| ") {
		_, after, _ = strings.Cut(after, "\n")
	}
	var b strings.Builder
	for _, r := range rows {
		final := ""
		if strings.Contains(head, "final") {
			final = map[bool]string{true: " yes |", false: " no |"}[r.Class == ClassFinal]
		}
		next := r.Next
		if next == "" {
			next = "none"
		}
		fmt.Fprintf(&b, "| `%s` |%s %s | %s |\n", r.Name, final, r.Meaning, next)
	}
	return before + head + b.String() + after
}
