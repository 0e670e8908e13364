// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

// pulled is a reference by tag or digest, as a field of any name may hold it.
var pulled = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][\w.${}-]*|@sha256:[0-9a-f]{64})$`)

// named are fields that hold nothing but references, also bare ones.
var named = regexp.MustCompile(`(?i)(^|[a-z])image$|^newName$`)

// upstream is the page that a Lolcow shows by its API, whoever serves the operator.
const upstream = "ghcr.io/vsoch/lolcow-operator"

// strangers returns references whose name an unrelated account of a public registry may own, each
// with its field's path: what names neither a registry that resolves nowhere (RFC 2606) nor one
// that its author gave.
func strangers(value any, at string) []string {
	var found []string
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			found = append(found, strangers(inner, at+"/"+key)...)
		}
	case []any:
		for i, inner := range v {
			found = append(found, strangers(inner, fmt.Sprint(at, "/", i))...)
		}
	case string:
		field := path.Base(at)
		if field == "default" { // of a property in a definition
			field = path.Base(path.Dir(at))
		}
		if v == "" || strings.HasPrefix(v, "$(") || !named.MatchString(field) && !pulled.MatchString(v) {
			return nil
		}
		host, _, _ := strings.Cut(v, "/")
		if v != upstream && host != "registry.invalid" && host != "registry.example.com" {
			found = append(found, at+": "+v)
		}
	}
	return found
}

// TestManifestsNameNoImageOfAStranger reads every manifest below config/ and samples/, and renders
// every kustomization. What the chart renders is the same (make chart).
func TestManifestsNameNoImageOfAStranger(t *testing.T) {
	var folders []string
	components := map[string][]string{}
	for _, root := range []string{"../../config", "../../samples"} {
		manifests(t, root, func(file string, document map[string]any) {
			for _, s := range strangers(document, file) {
				t.Error(s)
			}
			folder, err := filepath.Rel("../../config", filepath.Dir(file))
			switch {
			case err != nil:
				t.Fatal(err)
			case filepath.Base(file) != "kustomization.yaml":
			case document["kind"] == "Component":
				components[beside(folder)] = append(components[beside(folder)], folder)
			case folder != "samples/ooto":
				folders = append(folders, folder)
			}
		})
	}
	if len(folders) < 15 || len(components["default"]) < 8 {
		t.Errorf("found only the kustomizations %v, and the components %v", folders, components)
	}
	config, err := tree.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		objects, err := config.Objects([]string{folder}, components[folder])
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			for _, s := range strangers(o.Object, folder+": "+tree.Name(o)) {
				t.Error(s)
			}
		}
	}
}

// beside is the kustomization that a component changes.
func beside(component string) string {
	if operator, found := strings.CutSuffix(component, "/prometheus"); found {
		return operator + "/default"
	}
	return "default"
}

// manifests reads each document of each YAML file below a folder.
func manifests(t *testing.T, root string, read func(file string, document map[string]any)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" || leftOut(file) {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, text := range strings.Split(string(content), "\n---\n") {
			document := map[string]any{}
			if err := yaml.Unmarshal([]byte(text), &document); err != nil {
				var list []any // a list of patches
				if yaml.Unmarshal([]byte(text), &list) != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				document = map[string]any{"list": list}
			}
			read(file, document)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// leftOut are the manifest of krew, which is no manifest of Kubernetes, and the example that a
// proposal of others has.
func leftOut(file string) bool {
	return strings.Contains(file, "/krew/") || strings.HasSuffix(file, "/samples/ooto/module.yaml")
}

// templateImage is an image in a manifest's template.
var templateImage = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S+)$`)

// TestScaffoldNamesNoImageOfAStranger reads what `drover new operator` writes.
func TestScaffoldNamesNoImageOfAStranger(t *testing.T) {
	read := 0
	err := filepath.WalkDir("../../internal/cli/newoperator/template/config", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, match := range templateImage.FindAllSubmatch(content, -1) {
			read++
			for _, s := range strangers(map[string]any{"image": string(match[1])}, file) {
				t.Error(s)
			}
		}
		return nil
	})
	if err != nil || read == 0 {
		t.Errorf("%d images were read: %v", read, err)
	}
}

// flagRow is a flag with its default.
var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `?([^`|]*)`? \\|")

// TestFlagsNameNoImageOfAStranger reads the defaults that the programs print of themselves, and
// those of the programs that deliver.
func TestFlagsNameNoImageOfAStranger(t *testing.T) {
	content, err := os.ReadFile("../../docs/reference/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := flagRow.FindAllStringSubmatch(string(content), -1)
	if len(rows) < 100 {
		t.Errorf("only %d flags were read", len(rows))
	}
	for _, row := range rows {
		flag := map[string]any{strings.TrimSuffix(row[1], "-registry"): strings.TrimSpace(row[2])}
		if row[1] == "registry" {
			flag = map[string]any{"image": strings.TrimSpace(row[2])}
		}
		for _, s := range strangers(flag, "--"+row[1]) {
			t.Error(s)
		}
	}
}

// TestStrangersAreFound shows that it can fail.
func TestStrangersAreFound(t *testing.T) {
	for text, then := range map[string]int{
		`{spec: {containers: [{image: drover/drover-agent:dev}]}}`: 1,
		`{image: operator}`: 1,
		`{images: [{name: x, newName: drover/drover-agent}]}`:                                    1,
		`{data: {agent: "drover/drover-agent:dev"}}`:                                             1,
		`{env: [{name: BOOT_IMAGE, value: "docker.io/drover/drover-agent:dev"}]}`:                1,
		`{properties: {image: {default: drover/lolcow}}}`:                                        1,
		`{data: {agent: "registry.invalid/drover/drover-agent:dev"}, image: registry.invalid/x}`: 0,
		`{args: ["--image=$(AGENT_IMAGE)"], image: "$(AGENT_IMAGE)", path: "/opt/lib/modules"}`:  0,
		`{name: drover-agent, reference: "https://example.com/a/b:1", apiGroup: drover.dev/v1}`:  0,
		`{properties: {image: {default: "registry.example.com/x:1"}}, image: {type: string}}`:    0,
	} {
		document := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		if got := strangers(document, ""); len(got) != then {
			t.Errorf("%s: found %v", text, got)
		}
	}
}
