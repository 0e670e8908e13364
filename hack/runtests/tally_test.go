// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/hack/gotest"
)

const (
	pkg     = module + "internal/a"
	kept    = module + "internal/b"
	failing = module + "internal/c"
)

func reported(t *testing.T, events ...gotest.Event) (map[string]any, string) {
	t.Helper()
	var in, out bytes.Buffer
	for _, e := range events {
		if err := json.NewEncoder(&in).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	c := newTally()
	if err := c.follow(&in, &out); err != nil {
		t.Fatal(err)
	}
	if err := c.report(&out, cost{wall: 5900 * time.Millisecond, cpu: 9 * time.Second}); err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(out.String(), "RESULT ")
	result := map[string]any{}
	if err := json.Unmarshal([]byte(line), &result); err != nil || !found {
		t.Fatalf("%v in %s", err, out.String())
	}
	return result, out.String()
}

// TestReport: of a test with subtests they are named, of a package that was not tested again none.
func TestReport(t *testing.T) {
	got, text := reported(t,
		gotest.Event{Action: "pass", Package: pkg, Test: "TestQuick", Elapsed: 0.5},
		gotest.Event{Action: "run", Package: pkg, Test: "TestSlow/one"},
		gotest.Event{Action: "pass", Package: pkg, Test: "TestSlow/one", Elapsed: 2},
		gotest.Event{Action: "skip", Package: pkg, Test: "TestSlow/two", Elapsed: 1},
		gotest.Event{Action: "pass", Package: pkg, Test: "TestSlow", Elapsed: 3},
		gotest.Event{Action: "output", Package: pkg, Output: "ok  \t" + pkg + "\t4.000s\n"},
		gotest.Event{Action: "pass", Package: pkg, Elapsed: 4},
		gotest.Event{Action: "pass", Package: kept, Test: "TestKept", Elapsed: 60},
		gotest.Event{Action: "output", Package: kept, Output: "ok  \t" + kept + "\t(cached)\n"},
		gotest.Event{Action: "pass", Package: kept, Elapsed: 0.01},
		gotest.Event{Action: "fail", Package: failing, Test: "TestBad", Elapsed: 7},
		gotest.Event{Action: "fail", Package: failing, Elapsed: 8},
	)
	want := map[string]any{
		"passed": 4.0, "failed": 1.0, "skipped": 1.0, "packages": 3.0, "cached": 1.0, "seconds": 5.0, "cpuSeconds": 9.0,
		"slowest": []any{
			map[string]any{"name": "internal/c TestBad", "seconds": 7.0},
			map[string]any{"name": "internal/a TestSlow/one", "seconds": 2.0},
			map[string]any{"name": "internal/a TestSlow/two", "seconds": 1.0},
			map[string]any{"name": "internal/a TestQuick", "seconds": 0.5},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{"     8.0 s  internal/c\n", "     7.0 s  internal/c TestBad\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// TestTenAreNamed, slowest first.
func TestTenAreNamed(t *testing.T) {
	var events []gotest.Event
	for i := range 30 {
		events = append(events, gotest.Event{Action: "pass", Package: pkg, Test: "Test" + string(rune('A'+i)), Elapsed: float64(i)})
	}
	got, _ := reported(t, events...)
	slowest, ok := got["slowest"].([]any)
	if !ok || len(slowest) != 10 || !cmp.Equal(slowest[0], any(map[string]any{"name": "internal/a Test^", "seconds": 29.0})) {
		t.Errorf("%v", got["slowest"])
	}
}

func TestCostIsThatOfChildren(t *testing.T) {
	begin := time.Now()
	before := spentSince(begin)
	if output, err := exec.Command(os.Args[0], "-test.run=^$").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	after := spentSince(begin)
	if after.cpu <= before.cpu || after.wall <= before.wall {
		t.Errorf("%+v before, %+v after", before, after)
	}
}
