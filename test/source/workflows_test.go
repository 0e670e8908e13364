// SPDX-License-Identifier: Apache-2.0

package source

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// limits are what a workflow says about its jobs' rights and tools.
type limits struct {
	Permissions any               `json:"permissions"`
	Env         map[string]string `json:"env"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Steps       []struct {
			Uses string         `json:"uses"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

func workflows(t *testing.T) map[string]*limits {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.y*ml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows (%v)", err)
	}
	all := map[string]*limits{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w := &limits{}
		if err := yaml.Unmarshal(content, w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = w
	}
	return all
}

// TestJobsOfWorkflowsMayDoLittle: each job names what it may do, and none may write but where its
// name stands here.
func TestJobsOfWorkflowsMayDoLittle(t *testing.T) {
	writers := map[string]map[string]string{
		"release.yaml images":  {"contents": "read", "packages": "write"},
		"release.yaml attest":  {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"},
		"release.yaml bundle":  {"contents": "read", "packages": "write"},
		"release.yaml publish": {"contents": "write", "packages": "write", "id-token": "write", "attestations": "write"},
	}
	reads := map[string]string{"contents": "read"}
	for file, w := range workflows(t) {
		if outer, ok := w.Permissions.(map[string]any); !ok || len(outer) > 0 {
			t.Errorf("%s: permissions of all jobs are %v instead of {}", file, w.Permissions)
		}
		for name, job := range w.Jobs {
			want, ok := writers[file+" "+name]
			if !ok {
				want = reads
			}
			if diff := cmp.Diff(want, job.Permissions); diff != "" {
				t.Errorf("%s: permissions of job %s (-want +got)\n%s", file, name, diff)
			}
			for _, step := range job.Steps {
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("%s: job %s leaves the token in its checkout: persist-credentials: false", file, name)
				}
			}
		}
	}
}

// TestActionsAreNamedByDigest, with their version beside it: a tag is what its owner, or who has
// stolen their account, makes of it.
func TestActionsAreNamedByDigest(t *testing.T) {
	named := regexp.MustCompile(`^uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	files, err := filepath.Glob("../../.github/workflows/*.y*ml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
			if !strings.HasPrefix(line, "uses:") {
				continue
			}
			if found++; !named.MatchString(line) {
				t.Errorf("%s: %s is not named by its commit, with # vX.Y.Z", filepath.Base(file), line)
			}
		}
	}
	if found == 0 {
		t.Error("no action is used")
	}
}

// TestWorkflowsCompileWithTheNewestPatch of go.mod's line: go.mod names the first of the line,
// which setup-go would take literally.
func TestWorkflowsCompileWithTheNewestPatch(t *testing.T) {
	content, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.0$`).FindStringSubmatch(string(content))
	if line == nil {
		t.Fatal("go.mod does not name the first release of a line of Go")
	}
	if strings.Contains(string(content), "\ntoolchain ") {
		t.Error("go.mod has a toolchain line, which machines without that release must fetch")
	}
	for file, w := range workflows(t) {
		if w.Env["GO"] != line[1]+".x" {
			t.Errorf("%s: GO is %q instead of %q", file, w.Env["GO"], line[1]+".x")
		}
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				if !strings.HasPrefix(step.Uses, "actions/setup-go@") {
					continue
				}
				if diff := cmp.Diff(map[string]any{"go-version": "${{ env.GO }}", "check-latest": true}, step.With); diff != "" {
					t.Errorf("%s: setup-go in job %s (-want +got)\n%s", file, name, diff)
				}
			}
		}
	}
}

// TestUpdatesCoverAllModules: each go.mod and package.json of the tree is one that the update bot
// looks at.
func TestUpdatesCoverAllModules(t *testing.T) {
	content, err := os.ReadFile("../../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var bot struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(content, &bot); err != nil {
		t.Fatal(err)
	}
	covered := map[string][]string{}
	for _, u := range bot.Updates {
		folders := u.Directories
		if u.Directory != "" {
			folders = append(folders, u.Directory)
		}
		covered[u.Ecosystem] = append(covered[u.Ecosystem], folders...)
	}
	found := map[string][]string{"github-actions": {"/"}}
	for name, ecosystem := range map[string]string{"go.mod": "gomod", "package.json": "npm"} {
		err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && (slices.Contains([]string{"node_modules", ".git", "testdata", "dist", "bin"}, entry.Name())) {
				return filepath.SkipDir
			}
			if entry.Name() == name {
				folder, err := filepath.Rel("../..", filepath.Dir(file))
				found[ecosystem] = append(found[ecosystem], path.Join("/", filepath.ToSlash(folder)))
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, folders := range []map[string][]string{found, covered} {
		for _, list := range folders {
			slices.Sort(list)
		}
	}
	if diff := cmp.Diff(found, covered); diff != "" {
		t.Errorf(".github/dependabot.yml (-the tree +the bot)\n%s", diff)
	}
}
