// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"reflect"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

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
