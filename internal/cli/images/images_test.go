// SPDX-License-Identifier: Apache-2.0

package images

import (
	stdcmp "cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	builds "github.com/drover-project/drover/images"
	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/shared/version"
)

const root = "../../.."

func names() []string {
	var all []string
	for _, image := range All {
		all = append(all, image.Repository)
	}
	return slices.Sorted(slices.Values(all))
}

// scan finds what a pattern's group matches in the manifests of some folders, samples apart.
func scan(t *testing.T, pattern *regexp.Regexp, dirs ...string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	look := func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "samples" {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range pattern.FindAllSubmatch(content, -1) {
			found[string(m[1])] = true
		}
		return nil
	}
	for _, dir := range dirs {
		if err := filepath.WalkDir(root+dir, look); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// named is an image of Drover's in a manifest that is installed.
var named = regexp.MustCompile(`(?m)^\s*(?:- )?(?:image|newName|agent|signer|value): "?registry\.invalid/(drover/[a-z]+-[a-z-]+)`)

// TestAllThatConfigNames: manifests but samples name these images and no other of Drover's.
func TestAllThatConfigNames(t *testing.T) {
	found := scan(t, named, "/config")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), names()); diff != "" {
		t.Errorf("images of config (-) and of the command (+):\n%s", diff)
	}
}

// labelled is the label of a workload in a manifest or a template.
var labelled = regexp.MustCompile(`app\.kubernetes\.io/name"?:? "?([a-z-]+)`)

// TestAllThatRuns: the workloads of config/ and of the chart's hook, and the agent's static pod.
func TestAllThatRuns(t *testing.T) {
	found := scan(t, labelled, "/config", "/charts/drover/templates")
	found[boot.Name] = true
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), slices.Sorted(slices.Values(Workloads()))); diff != "" {
		t.Errorf("workloads of config and chart (-) and of the command (+):\n%s", diff)
	}
}

// TestAllThatTheChartNames: its values name these images, and one that has no default.
func TestAllThatTheChartNames(t *testing.T) {
	content, err := os.ReadFile(root + "/charts/drover/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Images map[string]any `json:"images"`
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	var have []string
	for name, value := range values.Images {
		image, ok := value.(map[string]any)
		if !ok || name == "buildah" {
			continue
		}
		repository, _ := image["repository"].(string)
		have = append(have, repository)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(have)), names()); diff != "" {
		t.Errorf("images of the chart (-) and of the command (+):\n%s", diff)
	}
}

// TestAllAreBuilt by make docker-build, under these names.
func TestAllAreBuilt(t *testing.T) {
	for _, name := range names() {
		if _, err := builds.Find(strings.TrimPrefix(name, "drover/")); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatIsPrinted by flags.
func TestWhatIsPrinted(t *testing.T) {
	const at = "registry.invalid/drover/"
	all := at + "drover-operator:dev\n" + at + "drover-agent:dev\n" + at + "drover-signer:dev\n" + at + "deviceconfig-operator:dev\n" +
		at + "ptemplate-operator:dev\n" + at + "lolcow-operator:dev\n"
	for name, tc := range map[string]struct {
		given []string
		// released is the registry that the linker was given.
		released string
		then     string
		fails    string
	}{
		"all": {then: all},
		"registry": {given: []string{"--registry=r.example/m/", "--only=operators.lolcow"},
			then: "r.example/m/drover/lolcow-operator:dev\n"},
		"no registry is none of a stranger": {given: []string{"--registry=", "--only=operators.lolcow"}, then: at + "lolcow-operator:dev\n"},
		"released": {given: []string{"--only=operators.lolcow"}, released: "r.example/us",
			then: "r.example/us/drover/lolcow-operator:dev\n"},
		"released, from a mirror": {given: []string{"--only=operators.lolcow", "--registry=m.example"}, released: "r.example/us",
			then: "m.example/drover/lolcow-operator:dev\n"},
		"some": {given: []string{"--tag=v1", "--only=cluster,build"},
			then: at + "drover-operator:v1\n" + at + "drover-agent:v1\n" + at + "drover-signer:v1\n"},
		"with buildah": {given: []string{"--only=build", "--buildah=q.example/b@sha256:12"},
			then: at + "drover-signer:dev\nq.example/b@sha256:12\n"},
		"no builds":    {given: []string{"--only=operators.lolcow", "--buildah=q.example/b@sha256:12"}, then: at + "lolcow-operator:dev\n"},
		"unknown part": {given: []string{"--only=all"}, fails: `unknown part "all"`},
		"json": {given: []string{"--only=operators.lolcow", "-o=json"}, then: "[\n  {\n    \"image\": \"" + at + "lolcow-operator:dev\",\n" +
			"    \"repository\": \"drover/lolcow-operator\",\n    \"parts\": [\n      \"operators.lolcow\"\n    ],\n" +
			"    \"purpose\": \"the LolCow operator\"\n  }\n]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			before := version.Registry
			t.Cleanup(func() { version.Registry = before })
			version.Registry = stdcmp.Or(tc.released, before)
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			cmd := NewCommand(genericclioptions.NewConfigFlags(false), streams, clock.RealClock{})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(tc.given)
			err := cmd.ExecuteContext(t.Context())
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Fatalf("it fails with %v, want %q", err, tc.fails)
			}
			if diff := cmp.Diff(tc.then, out.String()); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTagOfThisProgram: images of a release have its version.
func TestTagOfThisProgram(t *testing.T) {
	for given, then := range map[string]string{
		"v1.2.0": "v1.2.0", "1.2.0-rc.1": "1.2.0-rc.1", "dev": "dev", "v1.2.0-3-gabcdef0": "dev", "v1.2.0-dirty": "dev", "abcdef0": "dev",
	} {
		if got := release(given); got != then {
			t.Errorf("%s: %s, want %s", given, got, then)
		}
	}
}
