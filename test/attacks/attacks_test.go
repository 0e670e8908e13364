// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/testkit/env"
)

// root is Drover's folder, seen from here.
const root = "../.."

// Variables of the environment. overlaid says that this program is compiled without the check that
// BREAK names.
const (
	breakVariable  = "BREAK"
	breaksVariable = "BREAKS"
	overlaid       = "ATTACKS_OVERLAID"
)

// outcome is what RESULT says.
type outcome struct {
	Attacks    int     `json:"attacks"`
	Succeeded  int     `json:"succeeded"`
	Identities int     `json:"identities"`
	Seconds    float64 `json:"seconds"`
	Break      string  `json:"break,omitempty"`
}

// tally is what came of the attacks so far.
var tally struct {
	sync.Mutex
	outcome
	who map[Identity]bool
}

func TestMain(m *testing.M) {
	begin, broken := time.Now(), os.Getenv(breakVariable)
	if c, ok := checks[broken]; ok && os.Getenv(overlaid) == "" {
		os.Exit(recompiled(c))
	}
	code := env.MainWith(m, serverArguments)
	if tally.Attacks > 0 {
		tally.Break, tally.Identities = broken, len(tally.who)
		tally.Seconds = float64(time.Since(begin).Round(100*time.Millisecond)) / float64(time.Second)
		text, err := json.Marshal(tally.outcome)
		if err != nil {
			panic(err)
		}
		fmt.Printf("RESULT %s\n", text)
	}
	os.Exit(code)
}

// recompiled runs the tests in a program without a check.
func recompiled(c check) int {
	dir, err := os.MkdirTemp("", "attacks-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	top, err := filepath.Abs(root)
	if err != nil {
		panic(err)
	}
	list, err := c.overlay(top, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		return 2
	}
	again := exec.Command("go", "test", "-count=1", "-v", "-run", "^TestAttacks$", ".")
	again.Env = append(os.Environ(), overlaid+"=1", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+list))
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	if err := again.Run(); err != nil {
		return 1
	}
	return 0
}

// TestAttacks makes every attempt. With BREAK, it makes those that the broken answer stops.
func TestAttacks(t *testing.T) {
	broken := os.Getenv(breakVariable)
	chosen := All()
	if broken != "" {
		chosen = slices.DeleteFunc(chosen, func(a Attack) bool { return a.Answer.name != broken })
		if len(chosen) == 0 {
			t.Fatalf("BREAK=%s: no attack is answered by that", broken)
		}
	}
	tally.who = map[Identity]bool{}
	s := newScene(t)
	for _, file := range []string{"spoke/access.yaml", "build/operator_role.yaml", "build/binding.yaml"} {
		s.install(filepath.Join(root, "config", file))
	}
	if _, ok := checks[broken]; broken != "" && !ok {
		s.without(broken)
	}
	s.startOperator()
	t.Run("who", func(t *testing.T) {
		for _, a := range chosen {
			t.Run(string(a.Who)+"/"+a.What, func(t *testing.T) {
				t.Parallel()
				judge(t, a)
			})
		}
	})
}

// judge makes an attempt, which must be stopped by its answer.
func judge(t *testing.T, a Attack) {
	t.Helper()
	err := a.Try(newScene(t))
	tally.Lock()
	defer tally.Unlock()
	tally.Attacks++
	tally.who[a.Who] = true
	switch {
	case err == nil:
		tally.Succeeded++
		t.Errorf("SUCCEEDED: %s can %s: %s", a.Who, a.What, a.Why)
	case !a.Answer.gave(err) || !strings.Contains(err.Error(), a.Says):
		t.Errorf("stopped, but not by %s with %q: %v", a.Answer, a.Says, err)
	default:
		t.Logf("%s: %v", a.Answer, err)
	}
}

// TestEveryAnswerAnswers: each admission policy that denies, and each check in Go, has an attack
// that names it; and no attack names another.
func TestEveryAnswerAnswers(t *testing.T) {
	named := map[string]bool{}
	for _, a := range All() {
		if a.Answer.name != "" {
			named[a.Answer.name] = true
		}
	}
	all := denying(t)
	for name := range checks {
		all = append(all, name)
	}
	for _, name := range all {
		if !named[name] {
			t.Errorf("no attack is answered by %s", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("%s answers an attack, and is neither a policy that denies nor a check", name)
	}
}

// denying are the admission policies of config/policies whose bindings deny.
func denying(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/policies/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split("\n"+string(content), "\n---\n") {
			b := admissionv1.ValidatingAdmissionPolicyBinding{}
			if err := yaml.Unmarshal([]byte(document), &b); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if b.Kind == "ValidatingAdmissionPolicyBinding" && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				names = append(names, b.Spec.PolicyName)
			}
		}
	}
	if len(names) < 7 {
		t.Fatalf("%d policies only: %q", len(names), names)
	}
	slices.Sort(names)
	return slices.Compact(names) // a policy has a binding for each kind that it looks at
}

// TestRowsAreWhole: each row says everything, once, as cells of a table.
func TestRowsAreWhole(t *testing.T) {
	all, seen, who := All(), map[string]bool{}, map[Identity]bool{}
	for _, a := range all {
		what := string(a.Who) + " " + a.What
		if seen[what] {
			t.Errorf("two rows: %s", what)
		}
		seen[what], who[a.Who] = true, true
		if a.Says == "" && a.Answer.kind != byPolicy { // whose refusals have its name
			t.Errorf("%s: which words stop it?", what)
		}
		for _, text := range []string{string(a.Who), a.What, a.Why, a.Answer.String()} {
			if text == "" || strings.ContainsAny(text, "|\n") || strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is no cell", what, text)
			}
		}
	}
	if len(all) < 40 || len(who) < 8 {
		t.Errorf("%d attacks by %d identities", len(all), len(who))
	}
	byWho := slices.CompactFunc(slices.Clone(all), func(a, b Attack) bool { return a.Who == b.Who })
	if len(byWho) != len(who) {
		t.Error("the rows of one identity do not stand together")
	}
}

// TestChecksStand: each text that a check's break replaces is there, exactly once, and Drover
// compiles without the check. BREAKS=all, which would notice as well, takes too long to run for
// each change.
func TestChecksStand(t *testing.T) {
	all := overlay{Replace: map[string]string{}}
	build := []string{"build", "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	for name, c := range checks {
		file, err := c.overlay(root, t.TempDir())
		if err != nil {
			t.Errorf("BREAK=%s: %v", name, err)
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var one overlay
		if err := json.Unmarshal(content, &one); err != nil {
			t.Fatal(err)
		}
		for original, instead := range one.Replace {
			if all.Replace[original] != "" {
				t.Errorf("%s is changed by two checks, so that they cannot be compiled together", original)
			}
			all.Replace[original] = instead
		}
		build = append(build, root+"/"+c.Package)
	}
	content, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(build[2], content, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", build...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("Drover does not compile without its checks: %v\n%s", err, output)
	}
}

// TestBreaks takes each answer away in turn (BREAKS=all, or names with commas between them).
func TestBreaks(t *testing.T) {
	asked := os.Getenv(breaksVariable)
	if asked == "" {
		t.Skip("BREAKS=all takes minutes: each is a start of the API server, and each check a compilation")
	}
	names := strings.Split(asked, ",")
	if asked == "all" {
		names = denying(t)
		for name := range checks {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	red := 0
	for _, name := range names {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestAttacks$", "-test.v")
		cmd.Env = append(os.Environ(), breakVariable+"="+name, breaksVariable+"=")
		output, err := cmd.CombinedOutput()
		n := strings.Count(string(output), "SUCCEEDED: ")
		if err == nil || n == 0 {
			t.Errorf("%s: taking it away changes nothing: %v\n%s", name, err, output)
			continue
		}
		red++
		fmt.Printf("red without %-28s %d had success, such as: %s\n", name+":", n, example(string(output)))
	}
	fmt.Printf("RESULT {\"broken\":%d,\"red\":%d}\n", len(names), red)
}

// example is the first attack that had success.
func example(output string) string {
	for line := range strings.Lines(output) {
		if _, what, ok := strings.Cut(line, "SUCCEEDED: "); ok {
			return strings.TrimSpace(what)
		}
	}
	return ""
}
