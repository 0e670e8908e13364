// SPDX-License-Identifier: Apache-2.0

// Command chart generates the parts of charts/drover that are not written by hand: templates of all
// objects of config/ that have no settings, values.yaml, and docs/reference/chart.md. The last two
// are made of charts/drover/values.schema.json. `make manifests` runs it; `make chart` compares
// what the whole chart renders with what kustomize does.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	chartDir     = "charts/drover"
	generatedDir = chartDir + "/templates/generated"
	pageFile     = "docs/reference/chart.md"
)

func main() {
	if err := run("."); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run writes what is generated, and removes what no longer is.
func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(root, generatedDir, "*"))
	if err != nil {
		return fmt.Errorf("look for generated templates: %w", err)
	}
	for _, path := range old {
		if _, current := files[generatedDir+"/"+filepath.Base(path)]; !current {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove what is no longer generated: %w", err)
			}
		}
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write what is generated: %w", err)
		}
	}
	return nil
}

// generate returns the files by their paths below root.
func generate(root string) (map[string]string, error) {
	files, err := templates(root)
	if err != nil {
		return nil, err
	}
	schema, err := readSchema(filepath.Join(root, chartDir, "values.schema.json"))
	if err != nil {
		return nil, err
	}
	var values, page strings.Builder
	if err := schema.values(&values); err != nil {
		return nil, err
	}
	schema.page(&page)
	files[chartDir+"/values.yaml"], files[pageFile] = values.String(), page.String()
	return files, nil
}
