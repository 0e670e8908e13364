// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// setting is a value of the chart that is given, and what it must change.
type setting struct {
	// value is its path; given is what it is set to, in JSON.
	value, given string
	// object is which object changes, and at is the field, as a JSON pointer. "" is whether there is
	// the object at all, and /* at the end is any element of a list.
	object, at string
	// want is what the field is then, in JSON.
	want string
	// values are what else is given; empty: everything.
	values string
}

// settings sets each value of the schema, and returns what changes nothing or the wrong thing, and
// which value has no row.
func settings(ctx context.Context, h *helm, r *result) ([]string, error) {
	values, err := leaves(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		return nil, err
	}
	rows := table()
	problems := missing(values, rows)
	chart := filepath.Join(h.dir, "chart")
	if err := slim(chart); err != nil {
		return nil, err
	}
	plain := map[string]objects{}
	for _, row := range rows {
		if base := row.base(); plain[base] == nil {
			if plain[base], err = h.template(ctx, chart, base, nowhere); err != nil {
				return nil, err
			}
		}
	}
	told := make([]string, len(rows))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, row := range rows {
		group.Go(func() error {
			set, err := h.template(groupCtx, chart, row.base(), nowhere, row.value+"="+row.given)
			if err != nil {
				return fmt.Errorf("%s: %w", row.value, err)
			}
			told[i], err = row.judge(plain[row.base()], set)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, t := range told {
		if t == "" {
			r.Settings++
			continue
		}
		problems = append(problems, t)
	}
	return problems, nil
}

// slim copies the chart without the large definitions, which have no setting but their switch.
func slim(to string) error {
	if err := os.CopyFS(to, os.DirFS(chartDir)); err != nil {
		return fmt.Errorf("copy the chart: %w", err)
	}
	large, err := filepath.Glob(filepath.Join(to, "templates/generated/*-crds.yaml"))
	if err != nil || len(large) == 0 {
		return fmt.Errorf("look for definitions: %d found: %w", len(large), err)
	}
	for _, path := range large {
		if strings.Contains(path, "lolcow") {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("leave out definitions: %w", err)
		}
	}
	return nil
}

// missing are values without a row, and rows without a value.
func missing(values []string, rows []setting) []string {
	has := map[string]bool{}
	for _, row := range rows {
		has[row.value] = true
	}
	var problems []string
	for _, v := range values {
		if !has[v] {
			problems = append(problems, v+": no row says what it changes")
		}
		delete(has, v)
	}
	for _, v := range slices.Sorted(maps.Keys(has)) {
		problems = append(problems, v+": the chart has no such value")
	}
	return problems
}

func (s setting) base() string { return cmp.Or(s.values, everything) }

// judge says what is wrong with what is rendered without the setting and with it; empty: nothing.
func (s setting) judge(without, with objects) (string, error) {
	var want any
	if err := json.Unmarshal([]byte(s.want), &want); err != nil {
		return "", fmt.Errorf("%s: what it must be: %w", s.value, err)
	}
	was, is := without.field(s.object, s.at, want), with.field(s.object, s.at, want)
	switch {
	case !gocmp.Equal(is, want):
		return fmt.Sprintf("%s: %s %s is %v, want %v", s.value, s.object, s.at, is, want), nil
	case gocmp.Equal(was, want):
		return fmt.Sprintf("%s: %s %s is %v without it, too", s.value, s.object, s.at, was), nil
	}
	return "", nil
}

// field is what an object has at a pointer; nil if there is nothing. Of a list that has the wanted
// element, it is that one.
func (o objects) field(name, pointer string, want any) any {
	object := o[name]
	if pointer == "" {
		return object != nil
	}
	if object == nil {
		return nil
	}
	var at any = object.Object
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch node := at.(type) {
		case map[string]any:
			at = node[token]
		case []any:
			if token == "*" {
				if slices.ContainsFunc(node, func(element any) bool { return gocmp.Equal(element, want) }) {
					return want
				}
				return node
			}
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(node) {
				return nil
			}
			at = node[i]
		default:
			return nil
		}
	}
	return at
}

// leaves are the paths of all values with a default.
func leaves(schema string) ([]string, error) {
	content, err := os.ReadFile(schema)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	type node struct {
		Default    json.RawMessage
		Properties map[string]json.RawMessage
	}
	var found []string
	var walk func(path string, text []byte) error
	walk = func(path string, text []byte) error {
		var n node
		if err := json.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("read the schema: %s: %w", path, err)
		}
		if n.Default != nil {
			found = append(found, path)
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
			if err := walk(strings.TrimPrefix(path+"."+name, "."), n.Properties[name]); err != nil {
				return err
			}
		}
		return nil
	}
	err = walk("", content)
	return found, err
}
