// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

var update = flag.Bool("update", false, "rewrite the list of upstream's fields from its CRDs")

const (
	// upstreamVariable names a directory with the CRDs of Kernel Module Management; the default is
	// beside the repository.
	upstreamVariable = "DROVER_UPSTREAM_CRDS"
	upstreamDefault  = "../../../shared/upstream-crds"
	// fieldList holds the names of upstream's fields, for machines without its CRDs.
	fieldList = "../../api/kmm/v1beta1/testdata/upstream-fields.txt"
	ourCRDs   = "../../config/crd/bases"
	hubCRD    = "hub.kmm.sigs.x-k8s.io_managedclustermodules.yaml"
)

// ours is the path of one of our CRDs.
func ours(file string) string {
	if file == hubCRD {
		return filepath.Join("../../config/hub", file)
	}
	return filepath.Join(ourCRDs, file)
}

// kinds are the CRDs whose fields must all be ours too, and the Go types that hold them.
var kinds = map[string]func() any{
	"kmm.sigs.x-k8s.io_modules.yaml":            func() any { return &v1beta1.Module{} },
	"kmm.sigs.x-k8s.io_nodemodulesconfigs.yaml": func() any { return &v1beta1.NodeModulesConfig{} },
	hubCRD: func() any { return &hubv1beta1.ManagedClusterModule{} },
	// Of a kind with two versions, a file's name is followed by the version.
	"kmm.sigs.x-k8s.io_preflightvalidations.yaml@v1beta1": func() any { return &v1beta1.PreflightValidation{} },
	"kmm.sigs.x-k8s.io_preflightvalidations.yaml@v1beta2": func() any { return &v1beta2.PreflightValidation{} },
}

// field is what must not differ.
type field struct {
	Type, Format, Default string
	IntOrString, Required bool
}

func schemaOf(t *testing.T, file string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	file, version, _ := strings.Cut(file, "@")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; version == "" || v.Name == version {
			return v.Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("%s has no version %s", file, version)
	return nil
}

// fields flattens a schema: a.b[].c{} are the fields of a list's items and of a map's values.
func fields(schema *apiextensionsv1.JSONSchemaProps, path string, into map[string]field) {
	for name := range schema.Properties {
		property := schema.Properties[name]
		at := strings.TrimPrefix(path+"."+name, ".")
		f := field{Type: property.Type, Format: property.Format, IntOrString: property.XIntOrString,
			Required: slices.Contains(schema.Required, name)}
		if property.Default != nil {
			f.Default = string(property.Default.Raw)
		}
		into[at] = f
		fields(&property, at, into)
	}
	if schema.Items != nil {
		fields(schema.Items.Schema, path+"[]", into)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		fields(schema.AdditionalProperties.Schema, path+"{}", into)
	}
}

// upstream is the directory of upstream's CRDs, or empty when this machine does not have them.
func upstream(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(upstreamVariable); dir != "" {
		return dir
	}
	if _, err := os.Stat(upstreamDefault); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return upstreamDefault
}

// TestUpstreamFieldsAreOurs: every field of upstream has the same type and default here, and is not
// required unless it is there. Without upstream's CRDs only the names are compared.
func TestUpstreamFieldsAreOurs(t *testing.T) {
	dir := upstream(t)
	var listed []string
	for _, file := range slices.Sorted(maps.Keys(kinds)) {
		have := map[string]field{}
		fields(schemaOf(t, ours(file)), "", have)
		if dir == "" {
			checkNames(t, file, have)
			continue
		}
		theirs := map[string]field{}
		fields(schemaOf(t, filepath.Join(dir, file)), "", theirs)
		for _, name := range slices.Sorted(maps.Keys(theirs)) {
			listed = append(listed, file+" "+name)
			got, ok := have[name]
			want := theirs[name]
			if want.Required {
				got.Required = true // it is allowed to ask for less
			}
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Errorf("%s: %s is there: %v (-theirs +ours):\n%s", file, name, ok, diff)
			}
		}
	}
	if dir == "" {
		t.Logf("compared with the names in %s only: no CRDs of upstream in %s or $%s", fieldList, upstreamDefault, upstreamVariable)
		return
	}
	text := strings.Join(listed, "\n") + "\n"
	if *update {
		if err := os.WriteFile(fieldList, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(fieldList)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(have)); diff != "" {
		t.Errorf("%s is not current; -update rewrites it (-want +got):\n%s", fieldList, diff)
	}
}

func checkNames(t *testing.T, file string, ours map[string]field) {
	t.Helper()
	list, err := os.ReadFile(fieldList)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(list)) {
		in, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || in != file {
			continue
		}
		found++
		if _, ok := ours[name]; !ok {
			t.Errorf("%s: %s is missing", file, name)
		}
	}
	if found == 0 {
		t.Errorf("%s names no field of %s", fieldList, file)
	}
}

// TestUpstreamFieldsRoundTrip fills every field of upstream's schema and reads it into our Go types
// and back.
func TestUpstreamFieldsRoundTrip(t *testing.T) {
	dir := upstream(t)
	for file, into := range kinds {
		path := filepath.Join(dir, file)
		if dir == "" {
			path = ours(file) // has all of upstream's fields, which the test above shows without its CRDs
		}
		schema := schemaOf(t, path)
		given := map[string]any{}
		for _, part := range []string{"spec", "status"} {
			property := schema.Properties[part]
			given[part] = fill(&property)
		}
		text, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		object := into()
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(object); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		back, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(back, &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "metadata")
		var want map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		dropEmpty(want)
		dropEmpty(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-sent +read back):\n%s", file, diff)
		}
	}
}

// fill makes a value with every field set.
func fill(schema *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case schema.XIntOrString:
		return "1"
	case schema.Type == "string" && schema.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	case schema.Type == "string" && schema.Format == "duration":
		return "1m0s"
	case schema.Type == "string":
		return "x"
	case schema.Type == "integer", schema.Type == "number":
		return 1
	case schema.Type == "boolean":
		return true
	case schema.Type == "array":
		return []any{fill(schema.Items.Schema)}
	case schema.AdditionalProperties != nil:
		return map[string]any{"x": fill(schema.AdditionalProperties.Schema)}
	}
	object := map[string]any{}
	for name := range schema.Properties {
		property := schema.Properties[name]
		object[name] = fill(&property)
	}
	return object
}

// dropEmpty removes objects without fields: whether they are written does not matter.
func dropEmpty(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			dropEmpty(child)
			if object, ok := child.(map[string]any); ok && len(object) == 0 || child == nil {
				delete(v, name)
			}
		}
	case []any:
		for _, child := range v {
			dropEmpty(child)
		}
	}
}
