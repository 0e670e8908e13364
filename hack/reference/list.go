// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// existing is what the pages must list, and nothing else.
type existing struct {
	// Fields are paths, by the name of the kind's page without its ending.
	Fields map[string][]string `json:"fields"`
	// Flags are names with their dashes, by command.
	Flags   map[string][]string `json:"flags"`
	Reasons []string            `json:"reasons"`
	Metrics []string            `json:"metrics"`
}

func everything(root string, kinds []kind, commands []command) (*existing, error) {
	all := &existing{Fields: map[string][]string{}, Flags: map[string][]string{}}
	for _, k := range kinds {
		all.Fields[k.File[:len(k.File)-len(".md")]] = paths(k.schema, "")
	}
	for _, c := range commands {
		for _, f := range c.Flags {
			all.Flags[c.Name] = append(all.Flags[c.Name], "--"+f.Name)
		}
	}
	var err error
	if all.Reasons, err = declared(root, "api/kmm/v1beta1/conditions.go", aReason); err != nil {
		return nil, err
	}
	all.Metrics, err = declared(root, "internal/operator/metrics/*.go", aMetric)
	return all, err
}

// What the API and the operator declare is found in their sources. A test beside each compares the
// values themselves with the page; here it counts that nothing is left out.
var (
	aReason = regexp.MustCompile(`(?m)^\tReason\w+\s+= "(\w+)"`)
	aMetric = regexp.MustCompile(`(?:\bdesc\(|\bName: )"((?:drover|kmm)_\w+)"`)
)

// declared are the names that the sources of a pattern have, each once.
func declared(root, pattern string, name *regexp.Regexp) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", pattern, err)
	}
	var names []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a source: %w", err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(string(source), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s declares none", pattern)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
