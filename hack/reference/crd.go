// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// definitions are where CustomResourceDefinitions lie, in the order of the pages' importance.
var definitions = []string{"config/crd/bases", "config/hub", "config/ooto", "config/operators/*/crd"}

// kind is one version of a kind of objects.
type kind struct {
	Group, Version, Kind string
	// Names for kubectl, the plural first.
	Names      []string
	Namespaced bool
	// Served and Storage are those of the version.
	Served, Storage bool
	// File is the name of its page.
	File   string
	schema *schema
}

// readKinds returns every version of every kind that is defined under root. No two have the same
// page: the first has the kind's name, others add their version or their group's first word.
func readKinds(root string) ([]kind, error) {
	var kinds []kind
	for _, pattern := range definitions {
		files, err := filepath.Glob(filepath.Join(root, pattern, "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", pattern, err)
		}
		slices.Sort(files)
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read a definition: %w", err)
			}
			found, err := parseKinds(string(content))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			kinds = append(kinds, found...)
		}
	}
	if len(kinds) == 0 {
		return nil, errors.New("no CustomResourceDefinition was found")
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return weight(a) - weight(b) })
	return kinds, name(kinds)
}

// weight puts Modules first: what other kinds have in common with them is described there.
func weight(k kind) int {
	if k.Kind == "Module" && strings.HasPrefix(k.Group, "kmm.") {
		return 0
	}
	return 1
}

// name gives each kind the name of its page.
func name(kinds []kind) error {
	taken := map[string]kind{}
	for i, k := range kinds {
		file := strings.ToLower(k.Kind)
		if first, is := taken[file]; is && first.Group == k.Group {
			file += "-" + k.Version
		} else if is {
			file += "-" + strings.SplitN(k.Group, ".", 2)[0]
		}
		if _, is := taken[file]; is {
			return fmt.Errorf("two kinds would have the page %s.md", file)
		}
		taken[file] = k
		kinds[i].File = file + ".md"
	}
	return nil
}

// definition is what a page needs of a CustomResourceDefinition. Read by the API's own types, it
// would make the generators of this repository depend on what they generate for.
type definition struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
			Schema  struct {
				OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// between documents of a file stands this line.
var separator = regexp.MustCompile(`(?m)^---$`)

// parseKinds returns the kinds of a file's CustomResourceDefinitions, stored versions first.
func parseKinds(content string) ([]kind, error) {
	var kinds []kind
	for _, document := range separator.Split(content, -1) {
		var crd definition
		if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Schema.OpenAPIV3Schema == nil {
				return nil, fmt.Errorf("%s %s has no schema", crd.Metadata.Name, v.Name)
			}
			kinds = append(kinds, kind{
				Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind,
				Names:      append([]string{crd.Spec.Names.Plural}, crd.Spec.Names.ShortNames...),
				Namespaced: crd.Spec.Scope == "Namespaced", Served: v.Served, Storage: v.Storage, schema: v.Schema.OpenAPIV3Schema,
			})
		}
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return order(b.Storage) - order(a.Storage) })
	return kinds, nil
}

func order(first bool) int {
	if first {
		return 1
	}
	return 0
}
