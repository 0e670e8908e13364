// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// typeOf says what a value is.
func typeOf(s *schema) string {
	switch {
	case s.IntOrString:
		return "integer or string"
	case s.Items != nil:
		return "list of " + plural(typeOf(s.Items))
	case s.values() != nil:
		return "map of " + plural(typeOf(s.values()))
	case s.Type == "string" && s.Format == "date-time":
		return "time"
	case s.Type == "string" && s.Format == "duration":
		return "duration"
	case s.Open && len(s.Properties) == 0:
		return "anything"
	case s.Type == "":
		return "anything"
	}
	return s.Type
}

func plural(name string) string {
	switch {
	case name == "anything":
		return name
	case strings.HasPrefix(name, "list of ") || strings.HasPrefix(name, "map of "):
		return strings.Replace(name, " of ", "s of ", 1)
	case strings.HasPrefix(name, "integer or "):
		return "integers or strings"
	}
	return name + "s"
}

// rulesOf says what must hold of a field: whether it must be there, what it is without a value, and
// which values are refused.
func rulesOf(s *schema, required bool) []string {
	var rules []string
	if required {
		rules = append(rules, "required")
	}
	if s.Default != nil {
		rules = append(rules, "default "+code(string(s.Default)))
	}
	if immutable(s) {
		rules = append(rules, "immutable")
	}
	if s.Nullable {
		rules = append(rules, "may be null")
	}
	rules = append(rules, bounds(s)...)
	if s.Items != nil {
		for _, r := range bounds(s.Items) {
			rules = append(rules, "each: "+r)
		}
	}
	if s.values() != nil {
		for _, r := range bounds(s.values()) {
			rules = append(rules, "each: "+r)
		}
	}
	return rules
}

// immutable reports whether a value may not change.
func immutable(s *schema) bool {
	for _, v := range s.Validations {
		if strings.ReplaceAll(v.Rule, " ", "") == "self==oldSelf" {
			return true
		}
	}
	return false
}

// bounds are a schema's own limits.
func bounds(s *schema) []string {
	var rules []string
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			value := string(v)
			if len(value) > len(`""`) {
				value = strings.Trim(value, `"`)
			}
			values = append(values, code(value))
		}
		rules = append(rules, "one of "+strings.Join(values, ", "))
	}
	rules = append(rules, between("character", s.MinLength, s.MaxLength)...)
	rules = append(rules, between("item", s.MinItems, s.MaxItems)...)
	rules = append(rules, between("key", s.MinProperties, s.MaxProperties)...)
	if s.Minimum != nil {
		rules = append(rules, fmt.Sprintf("at least %g", *s.Minimum))
	}
	if s.Maximum != nil {
		rules = append(rules, fmt.Sprintf("at most %g", *s.Maximum))
	}
	if s.Pattern != "" {
		rules = append(rules, "pattern "+code(s.Pattern))
	}
	if !slices.Contains([]string{"", "date-time", "duration"}, s.Format) {
		rules = append(rules, "format "+s.Format)
	}
	if s.ListType == "set" {
		rules = append(rules, "no item twice")
	}
	if len(s.ListMapKeys) > 0 {
		var keys []string
		for _, key := range s.ListMapKeys {
			keys = append(keys, code(key))
		}
		rules = append(rules, "one item for each "+strings.Join(keys, " and "))
	}
	for _, v := range s.Validations {
		switch {
		case strings.ReplaceAll(v.Rule, " ", "") == "self==oldSelf":
		case v.Message != "":
			rules = append(rules, text(v.Message))
		default:
			rules = append(rules, code(v.Rule))
		}
	}
	return rules
}

// between says how many there may be.
func between(what string, least, most *int64) []string {
	switch {
	case least != nil && most != nil && *least == *most:
		return []string{fmt.Sprintf("exactly %s", count(*least, what))}
	case least != nil && most != nil:
		return []string{fmt.Sprintf("%d to %s", *least, count(*most, what))}
	case least != nil:
		return []string{"at least " + count(*least, what)}
	case most != nil:
		return []string{"at most " + count(*most, what)}
	}
	return nil
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
