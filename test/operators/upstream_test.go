// SPDX-License-Identifier: Apache-2.0

package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/kit/kittest"
)

const (
	// upstreamVariable names a folder with the definitions of upstream's Kernel Module Management; the
	// default is beside the repository.
	upstreamVariable = "DROVER_UPSTREAM_CRDS"
	upstreamDefault  = "../../../shared/upstream-crds"
	modulesFile      = "kmm.sigs.x-k8s.io_modules.yaml"
	// upstreamFields names upstream's fields, for machines without its definitions. Of those, test/api
	// makes and checks it.
	upstreamFields = "../../api/kmm/v1beta1/testdata/upstream-fields.txt"
)

// upstreamModules is the file of upstream's definition of Module. On a machine without it, it is
// ours with upstream's fields only, and no rule.
func upstreamModules(t *testing.T) string {
	t.Helper()
	path := filepath.Join(cmp.Or(os.Getenv(upstreamVariable), upstreamDefault), modulesFile)
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) || os.Getenv(upstreamVariable) != "" {
		return path
	}
	names, err := os.ReadFile(upstreamFields)
	must(t, err)
	keep := map[string]bool{}
	for line := range strings.Lines(string(names)) {
		if file, name, _ := strings.Cut(strings.TrimSpace(line), " "); file == modulesFile {
			keep[name] = true
		}
	}
	if len(keep) < 500 {
		t.Fatalf("%s names %d fields of upstream's Module", upstreamFields, len(keep))
	}
	content, err := os.ReadFile(filepath.Join("../../config/crd/bases", modulesFile))
	must(t, err)
	crd := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal(content, &crd.Object))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	must(t, err)
	for _, v := range versions {
		schema, _, err := unstructured.NestedFieldNoCopy(map[string]any{"version": v}, "version", "schema", "openAPIV3Schema")
		must(t, err)
		cut(schema, "", keep)
	}
	must(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	content, err = yaml.Marshal(crd.Object)
	must(t, err)
	path = filepath.Join(t.TempDir(), modulesFile)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

// cut leaves the fields of keep in a schema. The items of a list are named [], a map's values {}.
func cut(schema any, path string, keep map[string]bool) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	delete(s, "x-kubernetes-validations")
	properties, _ := s["properties"].(map[string]any)
	for name, property := range properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if !keep[at] {
			delete(properties, name)
			continue
		}
		cut(property, at, keep)
	}
	if required, ok := s["required"].([]any); ok {
		if required = slices.DeleteFunc(required, func(name any) bool { return properties[fmt.Sprint(name)] == nil }); len(required) == 0 {
			delete(s, "required")
		} else {
			s["required"] = required
		}
	}
	cut(s["items"], path+"[]", keep)
	cut(s["additionalProperties"], path+"{}", keep)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestUpstreamTakesTheChildren: where upstream's own definition of Module is served and no Drover
// runs, the same programs start, and each Module that they make has upstream's fields only.
func TestUpstreamTakesTheChildren(t *testing.T) {
	c := kittest.Start(t, kittest.Options{WithoutDrover: true, Manifests: append(definitions(), upstreamModules(t)), Operators: processes()})
	for _, name := range []string{"deviceconfig", "ptemplate", "ptemplate_defaults"} {
		t.Run(name, func(t *testing.T) {
			result.UpstreamChildren++
			o := example(t, name, c.Namespace(t))
			c.Create(t, o)
			var children []unstructured.Unstructured
			eventually(t, "it has a Module", func(context.Context) error {
				if children = childrenOf(t, c, o, kinds[0].kind); len(children) != 1 {
					return fmt.Errorf("it has %d", len(children))
				}
				return nil
			})
			accepted(t, c, &children[0])
			result.UpstreamAccepted++
		})
	}
}

// accepted objects to a Module of which upstream's definition lost or refused a part. What the
// operators write by server-side apply is refused as a whole if one field is not upstream's: that
// is tried, too.
func accepted(t *testing.T, c *kittest.Cluster, module *unstructured.Unstructured) {
	t.Helper()
	again := &unstructured.Unstructured{Object: map[string]any{"spec": module.Object["spec"]}}
	again.SetGroupVersionKind(module.GroupVersionKind())
	again.SetNamespace(module.GetNamespace())
	again.SetName(module.GetName() + "-again")
	if err := c.Client.Create(t.Context(), again.DeepCopy(), client.DryRunAll,
		client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		t.Errorf("upstream's definition refuses it: %v", err)
	}
	if err := unstructured.SetNestedField(again.Object, "x", "spec", "moduleLoader", "container", "notUpstreams"); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("test"),
		client.DryRunAll); err == nil {
		t.Error("server-side apply takes a field that upstream does not have")
	}
}
