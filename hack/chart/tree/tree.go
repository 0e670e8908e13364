// SPDX-License-Identifier: Apache-2.0

// Package tree builds kustomizations of config/ as `kubectl apply -k` does.
package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Tree is a copy of config/ in memory.
type Tree struct{ files filesys.FileSystem }

// Read reads config/ below root.
func Read(root string) (*Tree, error) {
	t := &Tree{files: filesys.MakeFsInMemory()}
	config := filepath.Join(root, "config")
	err := filepath.WalkDir(config, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".json" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(config, path)
		if err != nil {
			return err
		}
		return t.files.WriteFile("/config/"+filepath.ToSlash(relative), content)
	})
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return t, nil
}

// Objects are what a kustomization names that stands in a folder beside config/default: resources
// and components are paths below config/, such as "default" and "ooto". A resource may be a single
// file.
func (t *Tree) Objects(resources, components []string) ([]*unstructured.Unstructured, error) {
	const dir = "/config/rendered"
	beside := func(names []string) []string {
		var paths []string
		for _, name := range names {
			paths = append(paths, "../"+name)
		}
		return paths
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": types.KustomizationVersion, "kind": types.KustomizationKind,
		"resources": beside(resources), "components": beside(components),
	})
	if err != nil {
		return nil, fmt.Errorf("write a kustomization: %w", err)
	}
	if err := t.files.WriteFile(dir+"/kustomization.yaml", content); err != nil {
		return nil, fmt.Errorf("write a kustomization: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	what := strings.Join(slices.Concat(resources, components), ", ")
	all, err := krusty.MakeKustomizer(options).Run(t.files, dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", what, err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range all.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("kustomize %s: %w", what, err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return nil, fmt.Errorf("kustomize %s: %w", what, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// Name tells objects apart and people which one it is: "ClusterRole drover-agent".
func Name(o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.GroupVersionKind().Kind + " " + name
}
