// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseLength(t *testing.T) {
	for given, then := range map[string]length{
		"1000x":  {text: "1000x", least: 1000, limit: longest},
		"3s":     {text: "3s", guided: true, least: 1, limit: 3*time.Second + slack},
		"60s":    {text: "60s", guided: true, least: 100_000, limit: time.Minute + slack},
		"1h":     {text: "1h", guided: true, least: 100_000, limit: time.Hour + slack},
		"":       {},
		"0x":     {},
		"-5x":    {},
		"x":      {},
		"0s":     {},
		"-1m":    {},
		"60":     {},
		"1000 x": {},
	} {
		t.Run(given, func(t *testing.T) {
			got, err := parseLength(given)
			if (err != nil) != (then.text == "") {
				t.Errorf("error %v", err)
			}
			if got != then {
				t.Errorf("got %+v, want %+v", got, then)
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	const began = "fuzz: elapsed: 0s, gathering baseline coverage: 1/1 completed, now fuzzing with 2 workers\n"
	exit := errors.New("exit status 1")
	for name, tc := range map[string]struct {
		given string
		err   error
		then  outcome
		says  string // the problem, of at least 100 executions
	}{
		"enough": {
			given: began + "fuzz: elapsed: 3s, execs: 14856 (4938/sec), new interesting: 0 (total: 1)\n" +
				"fuzz: elapsed: 3s, execs: 20000 (4539/sec), new interesting: 12 (total: 13)\nPASS\n",
			then: outcome{executions: 20000},
		},
		"too few": {
			given: began + "fuzz: elapsed: 1m1s, execs: 99 (2/sec), new interesting: 0 (total: 1)\nPASS\n",
			then:  outcome{executions: 99},
			says:  "99 executions, and at least 100 were asked for",
		},
		"no numbers": {given: "PASS\n", says: "0 executions, and at least 100 were asked for"},
		"without coverage": {
			given: "warning: the test binary was not built with coverage instrumentation, so fuzzing will run without coverage guidance\n" +
				"fuzz: elapsed: 0s, execs: 100 (9/sec)\nPASS\n",
			then: outcome{executions: 100},
		},
		"a crash": {
			given: began + "fuzz: minimizing 34-byte failing input file\n--- FAIL: FuzzA (2.00s)\n    --- FAIL: FuzzA (0.00s)\n" +
				"        testing.go:1927: panic: boom\n            goroutine 3545 [running]:\n    \n" +
				"    Failing input written to testdata/fuzz/FuzzA/b303025052753c0f\n    To re-run:\n    go test -run=FuzzA/b303\nFAIL\n",
			err:  exit,
			then: outcome{failed: true, input: "testdata/fuzz/FuzzA/b303025052753c0f", says: "testing.go:1927: panic: boom"},
			says: "testing.go:1927: panic: boom (testdata/fuzz/FuzzA/b303025052753c0f)",
		},
		"a seed": {
			given: "failure while testing seed corpus entry: FuzzC/seed#0\n--- FAIL: FuzzC (0.20s)\n    --- FAIL: FuzzC (0.00s)\n" +
				"        a_test.go:5: bad \"ab\"\n    \nFAIL\n",
			err:  exit,
			then: outcome{failed: true, says: `a_test.go:5: bad "ab"`},
			says: `a_test.go:5: bad "ab"`,
		},
		"a worker that ends": {
			given: began + "--- FAIL: FuzzA (0.04s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\n" +
				"    Failing input written to testdata/fuzz/FuzzA/77\nFAIL\n",
			err: exit,
			then: outcome{failed: true, input: "testdata/fuzz/FuzzA/77",
				says: "fuzzing process hung or terminated unexpectedly: exit status 2"},
			says: "fuzzing process hung or terminated unexpectedly: exit status 2 (testdata/fuzz/FuzzA/77)",
		},
		"Go's own deadline": {
			given: began + "fuzz: elapsed: 3s, execs: 400 (0/sec), new interesting: 0 (total: 1)\n" +
				"--- FAIL: FuzzA (3.20s)\n    context deadline exceeded\nFAIL\n",
			err:  exit,
			then: outcome{executions: 400, says: "context deadline exceeded"},
		},
		"a target's own deadline": {
			given: began + "fuzz: elapsed: 3s, execs: 400 (0/sec), new interesting: 0 (total: 1)\n" +
				"--- FAIL: FuzzA (3.20s)\n    --- FAIL: FuzzA (0.00s)\n        a_test.go:7: context deadline exceeded\n" +
				"    Failing input written to testdata/fuzz/FuzzA/77\nFAIL\n",
			err:  exit,
			then: outcome{executions: 400, failed: true, input: "testdata/fuzz/FuzzA/77", says: "a_test.go:7: context deadline exceeded"},
			says: "a_test.go:7: context deadline exceeded (testdata/fuzz/FuzzA/77)",
		},
		"nothing said": {err: exit, then: outcome{failed: true, says: "exit status 1"}, says: "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var got outcome
			if err := got.read(strings.NewReader(tc.given), io.Discard); err != nil {
				t.Fatal(err)
			}
			got.ended(tc.err)
			if got != tc.then {
				t.Errorf("got %+v, want %+v", got, tc.then)
			}
			if diff := cmp.Diff(tc.says, got.problem(100)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFind(t *testing.T) {
	root := module(t, map[string]string{
		"a_test.go": "package tiny\nimport \"testing\"\nfunc FuzzB(f *testing.F) {}\n" +
			"func FuzzA(f *testing.F) {}\nfunc FuzzHelp(n int) {}\n",
		"a.go": "package tiny\nimport \"testing\"\nfunc FuzzOutside(f *testing.F) {}\n",
		"in/b_test.go": "package in_test\nimport \"testing\"\ntype s int\n" +
			"func (s) FuzzMethod(f *testing.F) {}\nfunc FuzzA(f *testing.F) {}\n",
		"in/tag_test.go":        "//go:build never\n\npackage in\nimport \"testing\"\nfunc FuzzTag(f *testing.F) {}\n",
		"in/testdata/x_test.go": "package x\nimport \"testing\"\nfunc FuzzData(f *testing.F) {}\n",
		"vendor/v/x_test.go":    "package x\nimport \"testing\"\nfunc FuzzVendor(f *testing.F) {}\n",
		"other/go.mod":          "module other\n",
		"other/x_test.go":       "package x\nimport \"testing\"\nfunc FuzzOther(f *testing.F) {}\n",
	})
	for only, then := range map[string][]targets{
		"":            {{dir: ".", names: []string{"FuzzA", "FuzzB"}}, {dir: "in", names: []string{"FuzzA"}}},
		"FuzzB":       {{dir: ".", names: []string{"FuzzB"}}},
		"^in\\.FuzzA": {{dir: "in", names: []string{"FuzzA"}}},
		"FuzzNone":    nil,
		"(":           nil,
	} {
		t.Run(only, func(t *testing.T) {
			got, err := find(root, only)
			if (err != nil) != (then == nil) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(then, got, cmp.AllowUnexported(targets{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestACrashIsRed and names target and input; what is green beside it still runs.
func TestACrashIsRed(t *testing.T) {
	root := module(t, map[string]string{
		"a_test.go": `package tiny

import "testing"

func FuzzGreen(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }

func FuzzRed(f *testing.F) {
	f.Add([]byte("0123456789"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if string(b) != "0123456789" {
			panic("boom")
		}
	})
}
`,
		"broken/b_test.go": "package broken\nimport \"testing\"\nfunc FuzzBroken(f *testing.F) { none() }\n",
	})
	var out strings.Builder
	err := run(t.Context(), &out, root, "500x", "")
	if err == nil {
		t.Fatalf("no error:\n%s", &out)
	}
	found := regexp.MustCompile(`\.FuzzRed: .*boom.* \((testdata/fuzz/FuzzRed/[0-9a-f]+)\)`).FindStringSubmatch(err.Error())
	if found == nil || !strings.Contains(err.Error(), "broken.FuzzBroken: compile: ") || strings.Contains(err.Error(), "FuzzGreen") {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, found[1])); err != nil {
		t.Error(err)
	}
	if !regexp.MustCompile(`(?m)^RESULT {"targets":3,"executions":\d+,"fewest":0,"crashes":2,"seconds":\d+}$`).MatchString(out.String()) {
		t.Errorf("printed:\n%s", &out)
	}
	out.Reset()
	if err := run(t.Context(), &out, root, "500x", "FuzzGreen"); err != nil {
		t.Error(err)
	}
	if !regexp.MustCompile(`(?m)^RESULT {"targets":1,"executions":5\d\d,"fewest":5\d\d,"crashes":0,"seconds":\d+}$`).MatchString(out.String()) {
		t.Errorf("printed:\n%s", &out)
	}
}

// module makes a Go module without dependencies.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module tiny\n\ngo 1.26\n"
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestABusyMachineHasMoreRounds: a target that has too few executions after its time gets it again,
// and one that never has enough is red.
func TestABusyMachineHasMoreRounds(t *testing.T) {
	root := module(t, map[string]string{
		"a_test.go": "package tiny\n\nimport \"testing\"\n\nfunc FuzzGreen(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }\n",
	})
	for least, then := range map[int]struct {
		rounds int
		red    bool
	}{
		1000:  {rounds: 1},
		2500:  {rounds: 3},
		50000: {rounds: maxRounds, red: true},
	} {
		var out strings.Builder
		f, err := newFuzzer(t.Context(), &out, root, length{text: "1000x", least: least, limit: longest})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.close)
		o := f.all(t.Context(), targets{dir: ".", names: []string{"FuzzGreen"}})[0]
		// Workers that run side by side may each do one more.
		if o.executions < 1000*then.rounds || o.executions >= 1000*(then.rounds+1) || (o.problem(least) != "") != then.red {
			t.Errorf("at least %d: %d executions, %q; want %d rounds\n%s", least, o.executions, o.problem(least), then.rounds, &out)
		}
	}
}
