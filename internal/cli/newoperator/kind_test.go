// SPDX-License-Identifier: Apache-2.0

package newoperator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// addKind calls `drover new kind`.
func addKind(t *testing.T, args ...string) (string, error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	c := NewCommand(nil, streams, nil)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"kind"}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// withSecondKind adds a kind to an operator, and generates what is generated.
func withSecondKind(t *testing.T, dir, kind string) {
	t.Helper()
	out, err := addKind(t, kind, "--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "make generate manifests test") {
		t.Errorf("it does not say what to do next: %s", out)
	}
	in(t, root, "make", "bin/controller-gen")
	generator, err := filepath.Abs(filepath.Join(root, "bin", "controller-gen"))
	if err != nil {
		t.Fatal(err)
	}
	in(t, dir, "make", "generate", "manifests", "CONTROLLER_GEN="+generator)
	if out := in(t, dir, "gofmt", "-l", "."); out != "" {
		t.Errorf("gofmt would change %s", out)
	}
}

// TestRefusedKinds: nothing is written.
func TestRefusedKinds(t *testing.T) {
	for given, test := range map[string]struct {
		kind   string
		change func(t *testing.T, dir string)
		then   []string
	}{
		"a folder of others": {"Switch", func(t *testing.T, dir string) { remove(t, dir, "PROJECT") },
			[]string{"no file PROJECT", "drover new operator"}},
		"a kind that is there": {"Card", nil, []string{"already has the kind Card (cards)"}},
		"a kind in lower case": {"switch", nil, []string{`--kind "switch"`, "upper case"}},
		"a file that is there": {"Operator", nil, []string{"internal/operator/operator.go exists"}},
		"a line that is gone": {"Switch", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "api", "v1alpha1", "register.go")
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(content), "// +drover:kinds", "", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"api/v1alpha1/register.go", "// +drover:kinds", "restore it", "&Switch{}"}},
	} {
		t.Run(given, func(t *testing.T) {
			dir := generated(t, "acme", "acme.example.com", "Card")
			if test.change != nil {
				test.change(t, dir)
			}
			before := contents(t, dir)
			_, err := addKind(t, test.kind, "--dir", dir)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, words := range test.then {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("the error does not say %q: %v", words, err)
				}
			}
			after := contents(t, dir)
			if len(after) != len(before) {
				t.Errorf("there are %d files, and were %d", len(after), len(before))
			}
			for path, content := range before {
				if after[path] != content {
					t.Errorf("%s was changed", path)
				}
			}
		})
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
