// SPDX-License-Identifier: Apache-2.0

package newoperator

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// root of this checkout, below which the package is.
const root = "../../.."

// run calls the command as a user does.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	c := NewCommand(nil, streams, nil)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"operator"}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// in runs a program in a folder and returns what it prints.
func in(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// generated makes an operator in a folder of its own, against this checkout.
func generated(t *testing.T, name, group, kind string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	out, err := run(t, name, "--group", group, "--kind", kind, "--dir", dir, "--replace", root)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "cd "+dir+" && make test") {
		t.Errorf("it does not say what to do next: %s", out)
	}
	return dir
}

// TestOperatorBuildsAndPassesItsTests at once: nothing is changed by hand, and all that is
// generated is there already.
func TestOperatorBuildsAndPassesItsTests(t *testing.T) {
	dir := generated(t, "acme-card-operator", "acme.example.com", "AcmeCard")
	in(t, dir, "go", "build", "-o", filepath.Join(t.TempDir(), "operator"), ".")
	withSecondKind(t, dir, "Switch")
	in(t, dir, "go", "vet", "./...")
	// The API server is given all that `make deploy` installs, not the definition alone.
	tests := filepath.Join(dir, "internal", "operator", "operator_test.go")
	content, err := os.ReadFile(tests)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Replace(content, []byte("../../config/crd"), []byte("../../config/default"), 1)
	if err := os.WriteFile(tests, all, 0o600); err != nil {
		t.Fatal(err)
	}
	out := in(t, dir, "go", "test", "-count=1", "-v", "./...")
	for _, test := range []string{"TestSampleReachesTheKernel", "TestChangedFieldReachesTheKernel", "TestDeletedModuleComesBack",
		"TestDeletedLeavesNothingInTheKernel", "TestMissingDeviceIsTold", "TestSwitchReachesTheKernel"} {
		if !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("%s was not run:\n%s", test, out)
		}
	}
}

// TestRegeneratingChangesNothing, whatever the names are and wherever the group sorts in the role.
func TestRegeneratingChangesNothing(t *testing.T) {
	in(t, root, "make", "bin/controller-gen")
	generator, err := filepath.Abs(filepath.Join(root, "bin", "controller-gen"))
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range [][3]string{
		{"acme-card-operator", "acme.example.com", "AcmeCard"}, // before all other groups of the role
		{"a", "devices.example.com", "GpuProxy"},
		{"operator-1", "hardware.example.com", "B"},
		{strings.Repeat("n", maxName), "zoo.example.com", "A" + strings.Repeat("x", 39)}, // behind all of them
	} {
		t.Run(names[0], func(t *testing.T) {
			dir := generated(t, names[0], names[1], names[2])
			before := contents(t, dir)
			in(t, dir, "make", "generate", "manifests", "CONTROLLER_GEN="+generator)
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("make generate manifests (-before +after):\n%s", diff)
			}
			if out := in(t, dir, "gofmt", "-l", "."); out != "" {
				t.Errorf("gofmt would change %s", out)
			}
		})
	}
}

// contents are all files of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestRequirementsAreFew: what the operator's own code imports is required directly, and nothing
// else.
func TestRequirementsAreFew(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(generated(t, "few", "acme.example.com", "Card"), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, m := range requirement.FindAllSubmatch(mod, -1) {
		if !bytes.HasSuffix(m[0], []byte("indirect")) {
			direct = append(direct, string(m[1]))
		}
	}
	if diff := cmp.Diff([]string{drover, "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"}, direct); diff != "" {
		t.Errorf("direct requirements (-want +got):\n%s", diff)
	}
}

// TestReconcileCodeIsSmall: what is the operator's own, the kit does not do.
func TestReconcileCodeIsSmall(t *testing.T) {
	dir := generated(t, "small", "acme.example.com", "Card")
	content, err := os.ReadFile(filepath.Join(dir, "internal", "operator", "operator.go"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(content, []byte("\n")); lines > 150 {
		t.Errorf("operator.go has %d lines", lines)
	}
}

func TestVersionOfTheGenerator(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "tools", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "sigs.k8s.io/controller-tools "+controllerTools+" ") {
		t.Errorf("tools/go.mod has another controller-tools than %s", controllerTools)
	}
	if !strings.Contains(string(content), "github.com/golangci/golangci-lint/v2 "+linter+" ") {
		t.Errorf("tools/go.mod has another golangci-lint than %s", linter)
	}
}

// TestRefusals: a wrong name is told, with what a right one is, and nothing is written.
func TestRefusals(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full")
	if err := os.MkdirAll(filepath.Join(full, "something"), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		given []string
		then  []string
	}{
		"name with upper case": {given: []string{"Acme", "--group", "a.example.com", "--kind", "Card"},
			then: []string{`NAME "Acme"`, "lower case"}},
		"name too long": {given: []string{strings.Repeat("n", 41), "--group", "a.example.com", "--kind", "Card"},
			then: []string{"at most 40"}},
		"no group":            {given: []string{"acme", "--kind", "Card"}, then: []string{"--group is missing"}},
		"group without a dot": {given: []string{"acme", "--group", "acme", "--kind", "Card"}, then: []string{`--group "acme"`, "dot"}},
		"group of Kubernetes": {given: []string{"acme", "--group", "acme.k8s.io", "--kind", "Card"}, then: []string{"k8s.io", "for itself"}},
		"no kind":             {given: []string{"acme", "--group", "a.example.com"}, then: []string{"--kind is missing"}},
		"kind in lower case": {given: []string{"acme", "--group", "a.example.com", "--kind", "card"},
			then: []string{`--kind "card"`, "upper case"}},
		"kind of a list": {given: []string{"acme", "--group", "a.example.com", "--kind", "CardList"},
			then: []string{`--kind "CardList"`, "List"}},
		"plural": {given: []string{"acme", "--group", "a.example.com", "--kind", "Card", "--plural", "Cards"},
			then: []string{`--plural "Cards"`}},
		"module": {given: []string{"acme", "--group", "a.example.com", "--kind", "Card", "--module", "a b"},
			then: []string{`--module "a b"`}},
		"all at once": {given: []string{"Acme", "--group", "acme", "--kind", "card"}, then: []string{"NAME", "--group", "--kind"}},
		"folder in use": {given: []string{"acme", "--group", "a.example.com", "--kind", "Card", "--dir", full},
			then: []string{full, "not empty", "--dir"}},
		"sources of others": {given: []string{"acme", "--group", "a.example.com", "--kind", "Card", "--replace", full},
			then: []string{"--replace", "Drover's sources"}},
		"no release": {given: []string{"acme", "--group", "a.example.com", "--kind", "Card"},
			then: []string{"not a release of Drover", "--replace"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_, err := run(t, tc.given...)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, words := range tc.then {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("the error does not say %q: %v", words, err)
				}
			}
			if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
				t.Errorf("it left %v (%v)", left, err)
			}
		})
	}
}

func TestWords(t *testing.T) {
	for kind, want := range map[string]string{"Card": "cards", "Proxy": "proxies", "Relay": "relays", "Bus": "buses", "Box": "boxes",
		"Switch": "switches"} {
		if got := plural(kind); got != want {
			t.Errorf("the plural of %s is %s", kind, got)
		}
	}
	for kind, want := range map[string]string{"Card": "card", "AcmeCard": "acme_card", "GPU": "gpu", "NetGPU2": "net_gpu2"} {
		if got := kernelModule(kind); got != want {
			t.Errorf("the kernel module of %s is %s", kind, got)
		}
	}
}
