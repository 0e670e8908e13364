// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestProjectFile: kubebuilder and operator-sdk recognise the repository by it, and what it names
// is there.
func TestProjectFile(t *testing.T) {
	var project struct {
		Layout     []string
		Repo       string
		Multigroup bool
		Resources  []struct{ Domain, Group, Kind, Path, Version string }
	}
	readYAML(t, "PROJECT", &project)
	if !slices.Equal(project.Layout, []string{"go.kubebuilder.io/v4"}) || !project.Multigroup ||
		!strings.Contains(readFile(t, "go.mod"), "module "+project.Repo+"\n") {
		t.Errorf("%+v", project)
	}
	kinds := map[string]bool{}
	for _, r := range project.Resources {
		kinds[strings.TrimPrefix(r.Group+"."+r.Domain, ".")+" "+r.Kind] = true
		folder := strings.TrimPrefix(r.Path, project.Repo+"/")
		if _, err := os.Stat(filepath.Join(root, folder, "groupversion_info.go")); err != nil || filepath.Base(folder) != r.Version {
			t.Errorf("%s of version %s: %v", r.Kind, r.Version, err)
		}
	}
	for _, kind := range []string{"kmm.sigs.x-k8s.io Module", "example.com DeviceConfig", "pt.example.com Ptemplate", "my.domain Lolcow"} {
		if !kinds[kind] {
			t.Errorf("no %s in %v", kind, kinds)
		}
	}
}

// workflow is the part of a GitHub workflow that is looked at here.
type workflow struct {
	// On is "on", which YAML 1.1 reads as true.
	On struct {
		PullRequest map[string]any `json:"pull_request"`
		Push        struct{ Branches []string }
	} `json:"on"`
	Jobs map[string]struct {
		ContinueOnError any `json:"continue-on-error"`
		If              any `json:"if"`
		Strategy        struct {
			Matrix struct {
				Include    []map[string]string
				Kubernetes []string
			}
		}
		Steps []struct {
			Uses, Run       string
			ContinueOnError any `json:"continue-on-error"`
			If              any `json:"if"`
		}
	}
}

// TestWorkflow: every step of the public CI is a target of the Makefile, none may fail unseen, and
// it runs when it should.
func TestWorkflow(t *testing.T) {
	const path = ".github/workflows/ci.yaml"
	text := readFile(t, path)
	var w workflow
	if err := yaml.Unmarshal([]byte(strings.Replace(text, "\non:\n", "\n\"on\":\n", 1)), &w); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^  pull_request:\s*$`).MatchString(text) || len(w.On.PullRequest) > 0 {
		t.Errorf("not every push to a pull request: %v", w.On.PullRequest)
	}
	if !slices.Equal(w.On.Push.Branches, []string{"main", "release-*"}) {
		t.Errorf("pushes to %v", w.On.Push.Branches)
	}
	want := map[string]string{"lint": "make lint", "unit": "make test", "integration": "make integration KUBERNETES=${{ matrix.kubernetes }}",
		"e2e": "make e2e KUBERNETES=${{ matrix.kubernetes }}"}
	makefile := readFile(t, "Makefile")
	for name, job := range w.Jobs {
		found := false
		for _, step := range job.Steps {
			found = found || step.Run == want[name]
			if step.ContinueOnError != nil || step.If != nil {
				t.Errorf("%s: a step that may be passed over: %+v", name, step)
			}
			target := regexp.MustCompile(`^make ([a-z0-9-]+)( KUBERNETES=\$\{\{ matrix\.kubernetes \}\})?$`).FindStringSubmatch(step.Run)
			switch {
			case step.Run == "":
			case target == nil:
				t.Errorf("%s: %q is no target of the Makefile", name, step.Run)
			case !regexp.MustCompile(`(?m)^` + target[1] + `\b[^=]*:`).MatchString(makefile):
				t.Errorf("%s: the Makefile has no target %s", name, target[1])
			}
		}
		if job.ContinueOnError != nil || job.If != nil || want[name] != "" && !found {
			t.Errorf("job %s: %+v", name, job)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("no job for %v", want)
	}
	if got := w.Jobs["e2e"].Strategy.Matrix.Kubernetes; !slices.Equal(got, []string{"1.31", "1.33", "1.36", "1.37"}) {
		t.Errorf("e2e on Kubernetes %v: docs/reference/compatibility.md names what is proven", got)
	}
	versions := map[string]bool{}
	for _, m := range w.Jobs["integration"].Strategy.Matrix.Include {
		versions[m["kubernetes"]] = true
	}
	if len(versions) < 2 {
		t.Errorf("integration with Kubernetes %v", versions)
	}
}

// TestDockerfiles: those that compile a program do so from the whole checkout, with the Go of
// go.mod, for every processor, and run it as nobody.
func TestDockerfiles(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))[1]
	files, err := filepath.Glob(filepath.Join(root, "images", "*", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var compiled []string
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		text := readFile(t, "images/"+name+"/Dockerfile")
		if !strings.Contains(text, "go build") {
			continue
		}
		compiled = append(compiled, name)
		for _, line := range []string{
			"FROM --platform=$BUILDPLATFORM golang:" + version + " AS build", "ARG TARGETARCH", "COPY . .", "USER 65532:65532",
		} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s: no line %q", name, line)
			}
		}
		for _, program := range regexp.MustCompile(`\./cmd/[a-z-]+`).FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(root, program, "main.go")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, name := range []string{"deviceconfig-operator", "drover-operator", "ptemplate-operator"} {
		if !slices.Contains(compiled, name) {
			t.Errorf("no Dockerfile for %s: %v", name, compiled)
		}
	}
	if _, err := os.Stat(filepath.Join(root, ".dockerignore")); err == nil {
		t.Error(".dockerignore may keep what is needed from the build")
	}
}
