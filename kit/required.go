// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Required returns what an operator requires: the kind of O with all fields, and each kind of child
// with the fields that desired sets, for an object with every field of its spec set, to 1, "1" or
// true, and for the examples: give some if a field is set for certain values only, or if desired
// refuses such an object. [Requires] reports errors, at the program's start.
func Required[O Object](desired func(O) ([]client.Object, error), examples ...O) []Requirement {
	var typed O
	requirements := []Requirement{{Object: emptyOf(typed)}}
	o := emptyOf(typed)
	o.SetName("example")
	fill(reflect.ValueOf(o).Elem().FieldByName("Spec"), nil)
	var errs []error
	for i, example := range append([]O{o}, examples...) {
		children, err := desired(copyOf(example))
		if err != nil && (i > 0 || len(examples) == 0) {
			errs = append(errs, fmt.Errorf("find out which fields are written for a %s: give examples to kit.Required: %w", kindOf[O](), err))
		}
		for _, child := range children {
			if err := require(&requirements, child); err != nil {
				errs = append(errs, err)
			}
		}
	}
	requirements[0].err = errors.Join(errs...)
	return requirements
}

// require adds a child's fields to the requirement of its kind.
func require(requirements *[]Requirement, child client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
	if err != nil {
		return fmt.Errorf("read the fields of a %T: %w", child, err)
	}
	fields := written("spec", content["spec"])
	i := slices.IndexFunc(*requirements, func(r Requirement) bool { return reflect.TypeOf(r.Object) == reflect.TypeOf(child) })
	if i < 0 {
		i = len(*requirements)
		*requirements = append(*requirements, Requirement{Object: emptyOf(child), Fields: []string{}})
	}
	known := &(*requirements)[i]
	known.Fields = append(known.Fields, fields...)
	slices.Sort(known.Fields)
	known.Fields = slices.Compact(known.Fields)
	return nil
}

// written lists the paths of fields that have a value, through lists.
func written(path string, value any) []string {
	switch value := value.(type) {
	case nil:
		return nil
	case map[string]any:
		if len(value) == 0 {
			return nil
		}
		fields := []string{path}
		for name, below := range value {
			fields = append(fields, written(path+"."+name, below)...)
		}
		return fields
	case []any:
		fields := []string{path}
		for _, item := range value {
			if _, object := item.(map[string]any); object {
				fields = append(fields, written(path, item)...)
			}
		}
		return fields
	}
	return []string{path}
}

// fill sets everything in a value, in types that contain themselves once.
func fill(v reflect.Value, within []reflect.Type) {
	if !v.IsValid() || !v.CanSet() || slices.Contains(within, v.Type()) {
		return
	}
	switch v.Kind() { //nolint:exhaustive // what has no JSON form is not in a spec
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), within)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), append(slices.Clone(within), v.Type()))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), within)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, within)
		fill(value, within)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("1")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	}
}
