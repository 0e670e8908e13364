// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Requirement is a kind of custom resource that an operator works with.
type Requirement struct {
	// Object is an empty object of the kind.
	Object client.Object
	// Fields that are written, through lists, such as
	// "spec.moduleLoader.container.kernelMappings.regexp". nil: all that the Go type has in spec and
	// status. [Required] finds them.
	Fields []string
	// err is why Required could not find them.
	err error
}

// ErrOutdated matches an error of [Requires] about a definition that lacks fields.
var ErrOutdated = errors.New("install the current one (make install)")

// Requires returns an error if the API server does not serve a kind, or if its
// CustomResourceDefinition lacks a field: what is written there is lost silently. The error names
// all such definitions and fields, and what to do. live reads from the API server, and needs the
// right to get these definitions.
func Requires(ctx context.Context, live client.Reader, scheme *runtime.Scheme, mapper meta.RESTMapper, requirements ...Requirement) error {
	var errs []error
	for _, r := range requirements {
		if err := r.check(ctx, live, scheme, mapper); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Requirement) check(ctx context.Context, live client.Reader, scheme *runtime.Scheme, mapper meta.RESTMapper) error {
	if r.err != nil {
		return r.err
	}
	kind, err := apiutil.GVKForObject(r.Object, scheme)
	if err != nil {
		return fmt.Errorf("name the kind of %T: %w", r.Object, err)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the API server does not know %s of %s: install its CustomResourceDefinition (make install): %w", kind.Kind,
			kind.GroupVersion(), err)
	}
	if err != nil {
		return fmt.Errorf("look for %s of %s: %w", kind.Kind, kind.GroupVersion(), err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	name := mapping.Resource.GroupResource().String()
	err = live.Get(ctx, client.ObjectKey{Name: name}, crd)
	if apierrors.IsNotFound(err) {
		return nil // an aggregated API server knows its fields
	}
	if err != nil {
		return fmt.Errorf("read the CustomResourceDefinition %s: %w", name, err)
	}
	fields := r.Fields
	if fields == nil {
		fields = fieldsOf(reflect.TypeOf(r.Object))
	}
	missing := slices.DeleteFunc(slices.Clone(fields), func(field string) bool { return serves(crd, kind.Version, field) })
	if len(missing) > 0 {
		return fmt.Errorf("the CustomResourceDefinition %s lacks %s: it is older than this program; %w", name, strings.Join(missing, ", "),
			ErrOutdated)
	}
	return nil
}

// serves tells whether a version of a definition has a field, or keeps unknown ones.
func serves(crd *apiextensionsv1.CustomResourceDefinition, version, field string) bool {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 || crd.Spec.Versions[i].Schema == nil || crd.Spec.Versions[i].Schema.OpenAPIV3Schema == nil {
		return false
	}
	at := crd.Spec.Versions[i].Schema.OpenAPIV3Schema
	for _, name := range strings.Split(field, ".") {
		for at.Items != nil && at.Items.Schema != nil {
			at = at.Items.Schema
		}
		if at.XPreserveUnknownFields != nil && *at.XPreserveUnknownFields || at.XEmbeddedResource {
			return true
		}
		if at.AdditionalProperties != nil { // a map: its keys are no fields
			return true
		}
		next, found := at.Properties[name]
		if !found {
			return false
		}
		at = &next
	}
	return true
}

// fieldsOf are the fields of a Go type below spec and status.
func fieldsOf(t reflect.Type) []string {
	var fields []string
	for _, top := range []string{"Spec", "Status"} {
		if field, found := t.Elem().FieldByName(top); found {
			fields = append(fields, below(strings.ToLower(top), field.Type, nil)...)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// below lists the path of a type and of its fields, but not into types with a JSON form of their
// own, nor a second time into types that contain themselves.
func below(path string, t reflect.Type, within []reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	fields := []string{path}
	if t.Kind() != reflect.Struct || slices.Contains(within, t) ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()) {
		return fields
	}
	within = append(slices.Clone(within), t)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case name == "-" || !t.Field(i).IsExported():
		case name == "":
			fields = append(fields, below(path, t.Field(i).Type, within)...)
		default:
			fields = append(fields, below(path+"."+name, t.Field(i).Type, within)...)
		}
	}
	return fields
}

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
