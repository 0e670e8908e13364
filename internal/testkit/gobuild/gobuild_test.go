// SPDX-License-Identifier: Apache-2.0

package gobuild

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// module writes a module of two packages, of which one uses the other, and returns its folder.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example.com/m\n\ngo 1.26.0\n\nrequire (\n\tone.example v1.0.0\n\ttwo.example v1.0.0 // indirect\n)\n",
		"a/a.go":  "package a\n\nimport \"example.com/m/b\"\n\nconst A = b.B\n",
		"b/b.go":  "package b\n\nconst B = 1\n",
		"slow.sh": "#!/bin/sh\ncase \"$*\" in *-V=full*) exec \"$@\" ;; esac\nwhile [ ! -e \"$GO_ON\" ]; do sleep 0.01; done\nexec \"$@\"\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GO_ON", filepath.Join(dir, "go-on"))
	return dir
}

// TestSaysHowFarItIs: while a compiler takes its time, lines say which packages were begun and how
// many are left. It goes on once they have.
func TestSaysHowFarItIs(t *testing.T) {
	dir := module(t)
	want := regexp.MustCompile(`^building things for \d+ s: 1 packages compiled, at most 1 left \(example.com/m/b\)$`)
	var said []string
	err := Build{
		Name: "things", Dir: dir, Flags: []string{"-toolexec=" + filepath.Join(dir, "slow.sh")}, Output: os.DevNull,
		Packages: []string{"./a"}, patience: 20 * time.Millisecond,
		Say: func(format string, args ...any) {
			said = append(said, fmt.Sprintf(format, args...))
			if want.MatchString(said[len(said)-1]) {
				if err := os.WriteFile(os.Getenv("GO_ON"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}
		},
	}.Run(t.Context())
	if err != nil {
		t.Fatalf("%v; it said %q", err, said)
	}
}

// TestBrokenBuild: the error is what the compiler said, without the progress.
func TestBrokenBuild(t *testing.T) {
	dir := module(t)
	if err := os.WriteFile(filepath.Join(dir, "b/b.go"), []byte("package b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Build{Name: "things", Dir: dir, Output: os.DevNull, Packages: []string{"./a"}}.Run(t.Context())
	want := "building things: exit status 1\n# example.com/m/a\na/a.go:5:13: undefined: b.B"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestProgress(t *testing.T) {
	dir := module(t)
	p := &progress{modules: Build{Dir: dir}.modules()}
	var got []string
	for _, line := range []string{"", "go: downloading one.example v1.0.0", "one.example/x", "# one.example/x", "x.go:1:2: wrong"} {
		if line != "" {
			p.take(line)
		}
		got = append(got, p.String())
	}
	p.packages = 3
	got = append(got, p.String())
	want := []string{
		"looking for what has changed, or linking (2 modules)",
		"1 modules loaded, at most 1 left (one.example v1.0.0)",
		"1 packages compiled (one.example/x)", "1 packages compiled (one.example/x)", "1 packages compiled (one.example/x)",
		"1 packages compiled, at most 2 left (one.example/x)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"# one.example/x", "x.go:1:2: wrong"}, p.other); diff != "" {
		t.Error(diff)
	}
}

// TestQuickIsWhatTheMakefileHas: with other flags, what a target and what a test compiles would be
// compiled twice.
func TestQuickIsWhatTheMakefileHas(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var quoted []string
	for _, flag := range Quick() {
		if strings.Contains(flag, " ") {
			flag = "'" + flag + "'"
		}
		quoted = append(quoted, flag)
	}
	if want := "\nQUICK := " + strings.Join(quoted, " ") + "\n"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile has no line %q", want)
	}
}
