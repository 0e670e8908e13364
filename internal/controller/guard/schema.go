// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// lists must be maps by namespace and name: in an atomic one, each Module's entry would replace all others.
var lists = []string{"spec.modules", "status.modules", "status.attempts"}

// misfit is what a CustomResourceDefinition of ours lacks; empty: nothing.
func misfit(crd *unstructured.Unstructured) string {
	plural, _, _ := strings.Cut(crd.GetName(), ".")
	version := versionOf(plural)
	schema := served(crd, version)
	if schema == nil {
		return "version " + version + " is not served"
	}
	if plural == "nodemodulesconfigs" {
		for _, path := range lists {
			if !isMap(at(schema, path)) {
				return "the list " + path + " is not a map by namespace and name"
			}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(fields[plural]), func(path string) bool { return at(schema, path) != nil })
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return "the field " + missing[0] + " is missing"
	}
	return fmt.Sprintf("%d fields are missing, one is %s", len(missing), missing[0])
}

// versionOf is the version in which we write a kind.
func versionOf(plural string) string {
	if plural == preflights {
		return v1beta2.GroupVersion.Version
	}
	return v1beta1.GroupVersion.Version
}

// served is the schema of our version, or nil.
func served(crd *unstructured.Unstructured, ours string) map[string]any {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return nil
	}
	for _, each := range versions {
		version, ok := each.(map[string]any)
		if !ok || version["name"] != ours || version["served"] != true {
			continue
		}
		schema, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		if err != nil {
			return nil
		}
		return schema
	}
	return nil
}

// at follows a path through properties, and through the items of lists.
func at(schema map[string]any, path string) map[string]any {
	for _, name := range strings.Split(path, ".") {
		if items, ok := schema["items"].(map[string]any); ok {
			schema = items
		}
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			return nil
		}
		if schema, ok = properties[name].(map[string]any); !ok {
			return nil
		}
	}
	return schema
}

func isMap(list map[string]any) bool {
	keys, ok := list["x-kubernetes-list-map-keys"].([]any)
	if !ok || list["x-kubernetes-list-type"] != "map" {
		return false
	}
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, fmt.Sprint(k))
	}
	slices.Sort(names)
	return slices.Equal(names, []string{"name", "namespace"})
}
