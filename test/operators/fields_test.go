// SPDX-License-Identifier: Apache-2.0

package operators

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/kit/kittest"
)

// change is another value of a field, and words of a child that can only come from it.
type change struct {
	value any
	then  string
	// instead of fields that say the same under another name.
	instead []string
}

var other = map[string]any{"example.com/other": "yes"}

// changes has every field of every kind. A field that a schema gains has to be added here.
var changes = map[string]map[string]change{
	"DeviceConfig": {
		"driverImage":        {value: "registry.example.com/another/driver", then: "registry.example.com/another/driver:"},
		"driverVersion":      {value: "2.0-changed", then: ":2.0-changed-"},
		"nodeSelector":       {value: other, then: `"selector":{"example.com/other":"yes"}`},
		"moduleName":         {value: "changed_module", then: `"moduleName":"changed_module"`},
		"kernelRegexp":       {value: "^4[.]18[.].+$", then: `"regexp":"^4[.]18[.].+$"`},
		"devicePluginImage":  {value: "registry.example.com/changed-plugin:2", then: `"image":"registry.example.com/changed-plugin:2"`},
		"serviceAccountName": {value: "another", then: `"serviceAccountName":"another"`},
	},
	"Ptemplate": {
		"maxdev":       {value: int64(4), then: "max_dev=4"},
		"defaultmsg":   {value: "changed", then: "default_msg=changed"},
		"driverImage":  {value: "registry.example.com/changed-driver:2", then: "registry.example.com/changed-driver:2"},
		"deviceplugin": {value: "registry.example.com/changed-plugin:2", then: `"image":"registry.example.com/changed-plugin:2"`},
		"consumerimage": {value: "registry.example.com/changed-consumer:2", then: `"image":"registry.example.com/changed-consumer:2"`,
			instead: []string{"consumer"}},
		"consumer": {value: "registry.example.com/changed-consumer:3", then: `"image":"registry.example.com/changed-consumer:3"`,
			instead: []string{"consumerimage"}},
		"requiredDevices":      {value: int64(3), then: `"example.com/ptemplate":"3"`},
		"imageRepoSecret.name": {value: "changed-secret", then: `"name":"changed-secret"`, instead: []string{"imagePullSecret"}},
		"imagePullSecret.name": {value: "another-secret", then: `"name":"another-secret"`, instead: []string{"imageRepoSecret"}},
		"selector":             {value: other, then: `"selector":{"example.com/other":"yes"}`},
	},
	"Lolcow": {
		"greeting":    {value: "MOO", then: `"args":["MOO"]`},
		"port":        {value: int64(30686), then: `"nodePort":30686`},
		"serviceName": {value: "changed-service", then: `"name":"changed-service"`},
		"image":       {value: "registry.example.com/changed-page:2", then: `"image":"registry.example.com/changed-page:2"`},
		"announceURL": {value: "http://page.example.invalid/", then: `"kind":"LolcowWorkspace"`},
	},
}

// TestEveryFieldReachesAChild: fields are changed one after the other on a live object; all that
// the schemas have.
func TestEveryFieldReachesAChild(t *testing.T) {
	for _, name := range []string{"deviceconfig", "ptemplate", "lolcow"} {
		t.Run(name, func(t *testing.T) {
			c, o := given(t, name)
			fields := schemaFields(t, name, o.GetKind())
			result.Fields += len(fields)
			for _, field := range fields {
				known, ok := changes[o.GetKind()][field]
				if !ok {
					t.Errorf("%s has a field spec.%s that nothing is known of here", o.GetKind(), field)
					continue
				}
				if text := family(t, c, o); strings.Contains(text, known.then) {
					t.Fatalf("a child says %s already: %s", known.then, text)
				}
				reaches(t, c, o, field, known)
				result.FieldsMutated++
			}
		})
	}
}

// reaches changes a field and waits until a child has it.
func reaches(t *testing.T, c *kittest.Cluster, o *unstructured.Unstructured, field string, known change) {
	t.Helper()
	eventually(t, "spec."+field+" is changed", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		for _, name := range known.instead {
			unstructured.RemoveNestedField(o.Object, "spec", name)
		}
		value := known.value
		if selector, ok := value.(map[string]any); ok {
			value = maps.Clone(selector)
		}
		if err := unstructured.SetNestedField(o.Object, value, append([]string{"spec"}, strings.Split(field, ".")...)...); err != nil {
			return err
		}
		return c.Client.Update(ctx, o, client.FieldValidation("Strict"))
	})
	eventually(t, "spec."+field+" reaches a child", func(context.Context) error {
		if text := family(t, c, o); !strings.Contains(text, known.then) {
			return fmt.Errorf("no child says %s: %s", known.then, text)
		}
		return nil
	})
}

// family is all of an object's children, as JSON without what the API server and others write.
func family(t *testing.T, c *kittest.Cluster, o client.Object) string {
	t.Helper()
	var all strings.Builder
	for i := range kinds {
		for _, child := range childrenOf(t, c, o, kinds[i].kind) {
			child.SetManagedFields(nil)
			child.SetOwnerReferences(nil)
			unstructured.RemoveNestedField(child.Object, "status")
			text, err := json.Marshal(child.Object)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// schemaFields are the paths below spec of all fields that a kind's schema has, sorted. Maps and
// lists are one field.
func schemaFields(t *testing.T, operator, kind string) []string {
	t.Helper()
	files, err := filepath.Glob(config(operator, "crd", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Names.Kind == kind {
			spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			fields := leaves("", &spec)
			slices.Sort(fields)
			return fields
		}
	}
	t.Fatalf("no file of %s defines %s", operator, kind)
	return nil
}

func leaves(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	if len(schema.Properties) == 0 {
		return []string{strings.TrimPrefix(path, ".")}
	}
	var all []string
	for name := range schema.Properties {
		property := schema.Properties[name]
		all = append(all, leaves(path+"."+name, &property)...)
	}
	return all
}
