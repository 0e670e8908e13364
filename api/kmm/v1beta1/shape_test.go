// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// crd is the part of a CustomResourceDefinition that is looked at here.
type crd struct {
	Spec struct {
		Scope    string `json:"scope"`
		Versions []struct {
			Subresources map[string]any   `json:"subresources"`
			Columns      []map[string]any `json:"additionalPrinterColumns"`
			Schema       struct {
				OpenAPIV3Schema struct {
					Properties map[string]any `json:"properties"`
				} `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

func readCRD(t *testing.T, plural string) crd {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../../config/crd/bases", "kmm.sigs.x-k8s.io_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c crd
	if err := yaml.Unmarshal(content, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestModuleIsNamespaced(t *testing.T) {
	if scope := readCRD(t, "modules").Spec.Scope; scope != "Namespaced" {
		t.Errorf("scope of Module is %s", scope)
	}
	if scope := readCRD(t, "nodemodulesconfigs").Spec.Scope; scope != "Cluster" {
		t.Errorf("scope of NodeModulesConfig is %s", scope)
	}
}

func TestKindsHaveOneVersionStatusAndColumns(t *testing.T) {
	for _, plural := range []string{"modules", "nodemodulesconfigs"} {
		versions := readCRD(t, plural).Spec.Versions
		if len(versions) != 1 {
			t.Fatalf("%s has %d versions: that would need a conversion webhook", plural, len(versions))
		}
		if _, ok := versions[0].Subresources["status"]; !ok || len(versions[0].Columns) < 4 {
			t.Errorf("%s: status subresource %t, %d printer columns", plural, ok, len(versions[0].Columns))
		}
	}
}

// Fields of core types that name a namespace of something else, and that are not ours.
var foreignNamespaceFields = regexp.MustCompile(`/(dataSourceRef|storageos)/`)

// TestNothingOfAModuleNamesANamespace: secrets, ConfigMaps, ServiceAccounts and children are of the
// Module's own namespace.
func TestNothingOfAModuleNamesANamespace(t *testing.T) {
	spec := readCRD(t, "modules").Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	fields := 0
	walk(spec, "spec", func(path string) {
		fields++
		if strings.HasSuffix(strings.ToLower(path), "namespace") && !foreignNamespaceFields.MatchString(path) {
			t.Errorf("%s lets a user choose a namespace", path)
		}
	})
	if fields < 100 {
		t.Errorf("only %d fields were looked at", fields)
	}
}

func walk(schema any, path string, visit func(path string)) {
	node, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if properties, ok := node["properties"].(map[string]any); ok {
		for name, child := range properties {
			visit(path + "/" + name)
			walk(child, path+"/"+name, visit)
		}
	}
	walk(node["items"], path, visit)
}

// TestNoConditionIsTransient: a condition type says what is, not what is going on.
func TestNoConditionIsTransient(t *testing.T) {
	types := matches(t, "conditions.go", `(?m)^\tCondition\w+ = "(\w+)"`)
	if len(types) == 0 {
		t.Fatal("no condition types found")
	}
	for _, c := range types {
		if strings.HasSuffix(c, "ing") {
			t.Errorf("condition type %s is transient", c)
		}
	}
}

// TestKeysAreInSecretsOnly: whoever signs names two Secrets; a key elsewhere, in a KMS for example,
// has no field until there is a decision.
func TestKeysAreInSecretsOnly(t *testing.T) {
	loader := readCRD(t, "modules").Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	found := 0
	walk(loader, "spec", func(path string) {
		if at := strings.Index(path, "/sign/"); at >= 0 {
			found++
			field := strings.Split(path[at+len("/sign/"):], "/")[0]
			if !slices.Contains([]string{"keySecret", "selector", "certSecret", "filesToSign", "unsignedImage", "unsignedImageRegistryTLS"}, field) {
				t.Errorf("%s is not decided", path)
			}
		}
	})
	if found < 10 {
		t.Errorf("only %d fields of sign were looked at", found)
	}
}
