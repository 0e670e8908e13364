// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// definitions are all CustomResourceDefinitions of this repository, by file.
func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	found := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, pattern := range []string{"crd/bases/*.yaml", "ooto/*.yaml", "operators/*/crd/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(config, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(content), "\nkind: CustomResourceDefinition\n") {
				continue
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict(content, crd); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found[file] = crd
		}
	}
	if len(found) < 8 {
		t.Fatalf("%d definitions only", len(found))
	}
	return found
}

// TestEveryKindHasColumns: kubectl get shows more than the name.
func TestEveryKindHasColumns(t *testing.T) {
	for file, crd := range definitions(t) {
		for _, version := range crd.Spec.Versions {
			if len(version.AdditionalPrinterColumns) == 0 {
				t.Errorf("%s: %s has no columns", file, version.Name)
			}
		}
	}
}

// TestDeviceOperatorsKeepNoKnowledgeInTheStatus: what an operator has to remember is in a
// workspace; a status has what was seen.
func TestDeviceOperatorsKeepNoKnowledgeInTheStatus(t *testing.T) {
	knowledge := regexp.MustCompile(`(?i)nonce|retr|attempt|tries|pending|counter|backoff|next`)
	checked := 0
	var walk func(file, path string, schema *apiextensionsv1.JSONSchemaProps)
	walk = func(file, path string, schema *apiextensionsv1.JSONSchemaProps) {
		for name, field := range schema.Properties {
			checked++
			if knowledge.MatchString(name) {
				t.Errorf("%s: %s.%s", file, path, name)
			}
			walk(file, path+"."+name, &field)
		}
		if schema.Items != nil && schema.Items.Schema != nil {
			walk(file, path, schema.Items.Schema)
		}
	}
	for file, crd := range definitions(t) {
		if !strings.Contains(filepath.ToSlash(file), "/operators/") {
			continue
		}
		for _, version := range crd.Spec.Versions {
			status, found := version.Schema.OpenAPIV3Schema.Properties["status"]
			if found && (version.Subresources == nil || version.Subresources.Status == nil) {
				t.Errorf("%s: the status is no subresource", file)
			}
			walk(file, "status", &status)
		}
	}
	if checked == 0 {
		t.Error("no field was looked at")
	}
}

// TestProjectNamesWhatIsThere: PROJECT, which kubebuilder and operator-sdk read, names packages
// that have the kinds, and the kinds have definitions.
func TestProjectNamesWhatIsThere(t *testing.T) {
	var project struct {
		Repo      string
		Resources []struct{ Group, Domain, Kind, Path, Version string }
	}
	root := filepath.Dir(config)
	content, err := os.ReadFile(filepath.Join(root, "PROJECT"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &project); err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(module), "module "+project.Repo+"\n") {
		t.Errorf("repo %s is not the module of go.mod", project.Repo)
	}
	all := definitions(t)
	for _, r := range project.Resources {
		dir := filepath.Join(root, strings.TrimPrefix(r.Path, project.Repo+"/"))
		if !declares(t, dir, r.Kind) {
			t.Errorf("%s: there is no type %s in %s", r.Kind, r.Kind, dir)
		}
		group := strings.TrimPrefix(r.Group+"."+r.Domain, ".")
		defined := false
		for _, crd := range all {
			for _, version := range crd.Spec.Versions {
				defined = defined || crd.Spec.Group == group && crd.Spec.Names.Kind == r.Kind && version.Name == r.Version
			}
		}
		if !defined {
			t.Errorf("%s %s of %s has no definition", r.Kind, r.Version, group)
		}
	}
}

// declares reports whether a package has a struct type of a name.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "\ntype "+name+" struct {") {
			return true
		}
	}
	return false
}
