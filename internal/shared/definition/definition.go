// SPDX-License-Identifier: Apache-2.0

// Package definition says whether a cluster's CustomResourceDefinitions are those of this version.
// The operator must not write by others, and the command line tool says why nothing is written.
package definition

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// lists must be maps by namespace and name: in an atomic one, one Module's entry would replace all.
var lists = []string{"spec.modules", "status.modules", "status.attempts"}

// Unconverted is the merge patch that takes a conversion webhook off a definition. Applying ours
// does not: the API server keeps what another field manager has written, and then refuses all.
const Unconverted = `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`

// Kind of a CustomResourceDefinition.
var Kind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Modules is the name of the CustomResourceDefinition of Modules.
var Modules = "modules." + v1beta1.GroupVersion.Group

// Names of the CustomResourceDefinitions whose objects the operator writes.
var Names = []string{Modules, "nodemodulesconfigs." + v1beta1.GroupVersion.Group, preflights + "." + v1beta2.GroupVersion.Group}

// Problem tells a user of definitions that are not ours; faults name them, and what each lacks.
func Problem(faults ...string) string {
	return "the cluster's CustomResourceDefinitions do not match this version of Drover (" + strings.Join(faults, "; ") +
		"): Drover changes nothing until you apply config/crd again"
}

// Misfit is what a CustomResourceDefinition of ours lacks; empty: nothing.
func Misfit(crd *unstructured.Unstructured) string {
	if service, webhook := Converter(crd); webhook {
		by := "a webhook"
		if service != "" {
			by = "the webhook of Service " + service
		}
		return "its versions are converted by " + by + ", which is of Kernel Module Management, and no object can be read once it is gone: " +
			"run kubectl patch crd " + crd.GetName() + ` --type merge -p '` + Unconverted + `'`
	}
	plural, _, _ := strings.Cut(crd.GetName(), ".")
	version := versionOf(plural)
	root := served(crd, version)
	if root == nil {
		return "version " + version + " is not served"
	}
	if plural == "nodemodulesconfigs" {
		for _, path := range lists {
			if !isMap(at(root, path)) {
				return "the list " + path + " is not a map by namespace and name"
			}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(fields[plural]), func(path string) bool { return at(root, path) != nil })
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return "the field " + missing[0] + " is missing"
	}
	return fmt.Sprintf("%d fields are missing, such as %s", len(missing), missing[0])
}

// Converter is the Service, as NAMESPACE/NAME, of the webhook that converts between a definition's
// versions; "" if the webhook has none. webhook tells whether there is one.
func Converter(crd *unstructured.Unstructured) (service string, webhook bool) {
	conversion, _, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
	if err != nil || conversion["strategy"] != "Webhook" {
		return "", false
	}
	of := func(field string) string {
		value, _, err := unstructured.NestedString(conversion, "webhook", "clientConfig", "service", field)
		if err != nil {
			return ""
		}
		return value
	}
	if name := of("name"); name != "" {
		return of("namespace") + "/" + name, true
	}
	return "", true
}

func versionOf(plural string) string {
	if plural == preflights {
		return v1beta2.GroupVersion.Version
	}
	return v1beta1.GroupVersion.Version
}

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
		root, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		if err != nil {
			return nil
		}
		return root
	}
	return nil
}

// at follows a path through properties and the items of lists; nil: it ends.
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

// An API server drops fields that its definition lacks without a word: an order to unload would
// become one to load. So every field that our types have must be served.
var fields = map[string][]string{
	"nodemodulesconfigs": fieldsOf(reflect.TypeFor[v1beta1.NodeModulesConfig]()),
	"modules":            fieldsOf(reflect.TypeFor[v1beta1.Module]()),
	preflights:           fieldsOf(reflect.TypeFor[v1beta2.PreflightValidation]()),
}

// preflights is the only kind of ours that is written in v1beta2.
const preflights = "preflightvalidations"

// fieldsOf are the paths of a type's fields, as far as the types are ours.
func fieldsOf(object reflect.Type) []string {
	ours, found := object.PkgPath(), []string{}
	var visit func(t reflect.Type, prefix string)
	visit = func(t reflect.Type, prefix string) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() != ours {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case options == "inline":
				visit(f.Type, prefix)
			case name != "" && name != "-" && prefix+name != "metadata":
				found = append(found, prefix+name)
				visit(f.Type, prefix+name+".")
			}
		}
	}
	visit(object, "")
	slices.Sort(found)
	return found
}
