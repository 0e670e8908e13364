// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// HashAnnotation is the digest of what was asked for when an object was written. It shows what a
// comparison cannot: a field that is no longer asked for.
const HashAnnotation = "drover.dev/desired-hash"

const hashDigits = 16

// Hash is the digest of a wish, for [HashAnnotation].
func Hash(wish any) (string, error) {
	text, err := json.Marshal(wish)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", wish, err)
	}
	return Digest(string(text), hashDigits), nil
}

// Wish is what a typed object asks for, as server-side apply takes it: what is set, without status,
// the API server's own metadata and empty structs. It has a [HashAnnotation].
func Wish(object client.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := Fields(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	wish := &unstructured.Unstructured{Object: content}
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	wish.SetGroupVersionKind(kind)
	annotations := wish.GetAnnotations()
	if annotations[HashAnnotation] != "" {
		return wish, nil
	}
	hash, err := Hash(content)
	if err != nil {
		return nil, err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[HashAnnotation] = hash
	wish.SetAnnotations(annotations)
	return wish, nil
}

// Settled reports whether an object has all that is asked for and was last written for the same
// wish. Other fields are the API server's defaults or other writers'.
func Settled(wish *unstructured.Unstructured, have client.Object) (bool, error) {
	if wish.GetAnnotations()[HashAnnotation] != have.GetAnnotations()[HashAnnotation] {
		return false, nil
	}
	is, err := Fields(have)
	if err != nil {
		return false, err
	}
	// Custom resources' lists are written as a whole; those of Kubernetes' own kinds get defaults.
	exact := !clientgoscheme.Scheme.Recognizes(wish.GroupVersionKind())
	for name, field := range wish.Object {
		if name != "apiVersion" && name != "kind" && !has(field, is[name], exact) {
			return false, nil
		}
	}
	return true, nil
}

// has reports whether is has every field of the wish. Lists must have the same items in the same
// order, each with every field of its wish and, if exact, no other.
func has(wish, is any, exact bool) bool {
	switch wish := wish.(type) {
	case map[string]any:
		fields, ok := is.(map[string]any)
		if !ok {
			return false
		}
		for name, field := range wish {
			if value, found := fields[name]; !found || !has(field, value, exact) {
				return false
			}
		}
		return true
	case []any:
		items, ok := is.([]any)
		if !ok || len(items) != len(wish) {
			return false
		}
		if exact {
			return equality.Semantic.DeepEqual(wish, items)
		}
		for i := range wish {
			if !has(wish[i], items[i], exact) {
				return false
			}
		}
		return true
	}
	return equality.Semantic.DeepEqual(wish, is)
}

// Fields is an object's JSON form without nulls and empty structs with omitempty, which
// encoding/json keeps.
func Fields(object client.Object) (map[string]any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object, nil
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(text, &content); err != nil { // keeps whole numbers
		return nil, fmt.Errorf("decode %T: %w", object, err)
	}
	thin(reflect.ValueOf(object), content)
	return content, nil
}

// thin takes from the JSON form of a value what nobody set.
func thin(value reflect.Value, form any) {
	for value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface {
		value = value.Elem()
	}
	switch form := form.(type) {
	case map[string]any:
		switch value.Kind() {
		case reflect.Struct:
			thinStruct(value, form)
		case reflect.Map:
			for entries := value.MapRange(); entries.Next(); {
				thin(entries.Value(), form[entries.Key().String()])
			}
		}
	case []any:
		if value.Kind() != reflect.Slice {
			return
		}
		for i := range form {
			thin(value.Index(i), form[i])
		}
	}
}

func thinStruct(value reflect.Value, form map[string]any) {
	for i := range value.NumField() {
		name, options, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		field := value.Field(i)
		if name == "" && value.Type().Field(i).Anonymous { // a struct whose fields are the outer one's, such as TypeMeta
			thin(field, form)
			continue
		}
		content, found := form[name]
		if !found {
			continue
		}
		if content == nil || strings.Contains(options, "omitempty") && field.Kind() == reflect.Struct && field.IsZero() {
			delete(form, name)
			continue
		}
		thin(field, content)
	}
}
