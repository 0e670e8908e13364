// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/rollout"
)

var update = flag.Bool("update", false, "write the table of docs/guide/upgrades.md")

// rows are the situations of the table, as a reader would tell them apart. The images are on the
// nodes.
var rows = []struct {
	text string
	situation
}{
	{"nothing is live, and nothing was ordered: a first load", situation{}},
	{"the same, and it takes out in-tree modules", situation{replaces: true}},
	{"the same, with `unloadPolicy: OnReboot`", situation{replaces: true, onReboot: true}},
	{"nothing is live: that order failed, is paused, waits for users or for its image",
		situation{ordered: "other", says: "failed"}},
	{"nothing is live: the node has booted another kernel", situation{ordered: "kernel"}},
	{"nothing is live: it was unloaded, and is selected again", situation{ordered: "unload"}},
	{"another build is live, as ordered: an upgrade", situation{live: "other", ordered: "other"}},
	{"the same, with `unloadPolicy: OnReboot`", situation{live: "other", ordered: "other", onReboot: true}},
	{"another build is live, and its order is gone", situation{live: "other"}},
	{"another build is live, and the order for a third one waits for users", situation{live: "other", ordered: "third", says: "in use"}},
	{"another build is live: the order for a third one failed", situation{live: "other", ordered: "third", says: "failed"}},
	{"another build is live, and is to be unloaded, but the node is selected again", situation{live: "other", ordered: "unload"}},
	{"another build is live until the next boot, and `OnReboot` is taken back",
		situation{live: "other", ordered: "asked", says: "reboot", waits: true}},
	{"what is asked for is live, under an order for another build: a change that was reverted", situation{live: "asked", ordered: "other"}},
	{"what is asked for is live, and is to be unloaded, but the node is selected again", situation{live: "asked", ordered: "unload"}},
	{"a build is live, and the node is no longer selected", situation{live: "other", ordered: "other", asks: "unload"}},
	{"nothing is live, and the node is no longer selected", situation{ordered: "other", asks: "unload"}},
}

// TestTable: the table of docs/guide/upgrades.md is what the planner answers.
func TestTable(t *testing.T) {
	const page, head = "../../../docs/guide/upgrades.md",
		"| a node | pause | failure elsewhere | first node | place |\n|---|---|---|---|---|\n"
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(have), head)
	if !found {
		t.Fatalf("%s has no table that begins with %q", page, head)
	}
	for strings.HasPrefix(after, "| ") {
		_, after, _ = strings.Cut(after, "\n")
	}
	var b strings.Builder
	for _, row := range rows {
		s := row.situation
		s.held = true
		if s.asks == "" {
			s.asks = "load"
		}
		n := rollout.Observe(s.facts())
		b.WriteString("| " + row.text)
		if (context{}).plan(n).Hold["n"] {
			t.Errorf("%s: held by nothing", row.text)
		}
		for _, c := range []context{{pause: true}, {failure: true}, {noProof: true}, {noPlace: true}} {
			b.WriteString(" | " + map[bool]string{true: "waits"}[c.plan(n).Hold["n"]])
		}
		b.WriteString(" |\n")
	}
	want := strings.ReplaceAll(before+head+b.String()+after, "|  |", "| |")
	want = strings.ReplaceAll(want, "|  |", "| |")
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(have), want); diff != "" {
		t.Errorf("the page (-) is not what the planner answers (+): go test ./internal/shared/rollout -update\n%s", diff)
	}
}
