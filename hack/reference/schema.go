// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
)

// schema is of an object or of a value, as a CustomResourceDefinition has it. What is not read here
// is in no definition of this repository, or says nothing to people.
type schema struct {
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Format      string             `json:"format,omitempty"`
	Default     json.RawMessage    `json:"default,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	// AdditionalProperties are a schema, or whether there may be any.
	AdditionalProperties json.RawMessage   `json:"additionalProperties,omitempty"`
	Required             []string          `json:"required,omitempty"`
	Enum                 []json.RawMessage `json:"enum,omitempty"`
	Pattern              string            `json:"pattern,omitempty"`
	MinLength            *int64            `json:"minLength,omitempty"`
	MaxLength            *int64            `json:"maxLength,omitempty"`
	MinItems             *int64            `json:"minItems,omitempty"`
	MaxItems             *int64            `json:"maxItems,omitempty"`
	MinProperties        *int64            `json:"minProperties,omitempty"`
	MaxProperties        *int64            `json:"maxProperties,omitempty"`
	Minimum              *float64          `json:"minimum,omitempty"`
	Maximum              *float64          `json:"maximum,omitempty"`
	Nullable             bool              `json:"nullable,omitempty"`
	IntOrString          bool              `json:"x-kubernetes-int-or-string,omitempty"`
	Open                 bool              `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	ListType             string            `json:"x-kubernetes-list-type,omitempty"`
	ListMapKeys          []string          `json:"x-kubernetes-list-map-keys,omitempty"`
	Validations          []validation      `json:"x-kubernetes-validations,omitempty"`
}

// validation is a rule in CEL.
type validation struct {
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"`
}

// values is the schema of a map's values, or nil.
func (s *schema) values() *schema {
	var values schema
	if len(s.AdditionalProperties) == 0 || json.Unmarshal(s.AdditionalProperties, &values) != nil {
		return nil
	}
	return &values
}

// inner returns the object that a value holds, and what its path adds to the value's: nothing for
// an object, [] for a list's entries, {} for a map's values. It is nil for what has no fields.
func inner(s *schema) (*schema, string) {
	switch {
	case len(s.Properties) > 0:
		return s, ""
	case s.Items != nil:
		object, suffix := inner(s.Items)
		return object, "[]" + suffix
	case s.values() != nil:
		object, suffix := inner(s.values())
		return object, "{}" + suffix
	}
	return nil, ""
}

// own are an object's fields by name, without those that every object has.
func own(s *schema, top bool) []string {
	var names []string
	for name := range s.Properties {
		if !top || !slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// join appends a name to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// paths lists every field of an object, and of the objects in it.
func paths(s *schema, at string) []string {
	var all []string
	for _, name := range own(s, at == "") {
		field := s.Properties[name]
		path := join(at, name)
		all = append(all, path)
		if object, suffix := inner(field); object != nil {
			all = append(all, paths(object, path+suffix)...)
		}
	}
	return all
}

// shape is what two objects have in common when they have the same fields, described the same way.
// What is said of the object as a whole does not count.
func shape(s *schema) (string, error) {
	encoded, err := json.Marshal(struct {
		Fields   map[string]*schema
		Required []string
		Rules    []validation
	}{s.Properties, s.Required, s.Validations})
	if err != nil {
		return "", fmt.Errorf("encode a schema: %w", err)
	}
	return string(encoded), nil
}
