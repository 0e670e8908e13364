// SPDX-License-Identifier: Apache-2.0

package newoperator

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

const (
	// drover is the Go module that the operator stands on.
	drover = "github.com/drover-project/drover"
	// imageTool makes the operator's image.
	imageTool = drover + "/images/cmd/drover-images"
	// controllerTools is what made the generated files among the templates, and goMinor what they need.
	controllerTools, goMinor = "v0.23.0", "1.26"
	// linter is the release of golangci-lint that Drover uses.
	linter = "v2.15.0"
	suffix = ".tmpl"
)

// templates are the files of an operator. Those of deep copies, CRD and role are what controller-gen makes of the others.
//
//go:embed template kind
var templates embed.FS

// names are what is in templates' names.
type names struct {
	Name, Group, Kind, Singular, Plural, Module, KernelModule, Image string
	Drover, Replace, ControllerTools, GoMinor, Linter                string
}

// files renders everything, by path below the operator's folder.
func (o *Options) files() (map[string][]byte, error) {
	data := o.names()
	files, err := o.goModule()
	if err != nil {
		return nil, err
	}
	where := strings.NewReplacer("GROUP", o.Group, "PLURAL", o.Plural, "gitignore", ".gitignore", "dockerignore", ".dockerignore", "golangci.yml", ".golangci.yml", "github/", ".github/")
	err = fs.WalkDir(templates, "template", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := render(path, data)
		if err != nil {
			return err
		}
		files[where.Replace(strings.TrimSuffix(strings.TrimPrefix(path, "template/"), suffix))] = content
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make the operator's files: %w", err)
	}
	return files, nil
}

func (o *Options) names() names {
	return names{
		Name: o.Name, Group: o.Group, Kind: o.Kind, Singular: strings.ToLower(o.Kind), Plural: o.Plural, Module: o.Module,
		KernelModule: kernelModule(o.Kind), Image: "registry.example.com/" + o.Name,
		Drover: drover, Replace: o.Replace, ControllerTools: controllerTools, GoMinor: goMinor, Linter: linter,
	}
}

func render(path string, data names) ([]byte, error) {
	t, err := template.New(filepath.Base(path)).Option("missingkey=error").ParseFS(templates, path)
	if err != nil {
		return nil, fmt.Errorf("read template %s: %w", path, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("fill in template %s: %w", path, err)
	}
	if !strings.HasSuffix(path, ".go"+suffix) {
		return out.Bytes(), nil
	}
	formatted, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", path, err)
	}
	return formatted, nil
}

// requirement is a line of go.mod within a require block.
var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)(?: // indirect)?$`)

// imported are the modules that the operator's own code imports beside Drover.
var imported = []string{"k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"}

// goModule makes go.mod, and go.sum where Drover's sources are at hand: the versions are those that Drover is tested with, and no network is
// needed.
func (o *Options) goModule() (map[string][]byte, error) {
	if o.Replace == "" {
		version, err := release()
		if err != nil {
			return nil, err
		}
		return map[string][]byte{"go.mod": fmt.Appendf(nil, "module %s\n\ngo %s.0\n\ntool %s\n\nrequire %s %s\n", o.Module, goMinor, imageTool, drover, version)}, nil
	}
	sources, err := filepath.Abs(o.Replace)
	if err != nil {
		return nil, fmt.Errorf("--replace %s: %w", o.Replace, err)
	}
	mod, err := os.ReadFile(filepath.Join(sources, "go.mod"))
	if err != nil || !bytes.HasPrefix(mod, []byte("module "+drover+"\n")) {
		return nil, fmt.Errorf("--replace %s: it is no folder with Drover's sources: its go.mod is not that of %s", o.Replace, drover)
	}
	sum, err := os.ReadFile(filepath.Join(sources, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("--replace %s: %w", o.Replace, err)
	}
	var direct, indirect strings.Builder
	for _, m := range requirement.FindAllSubmatch(mod, -1) {
		if path := string(m[1]); slices.Contains(imported, path) {
			fmt.Fprintf(&direct, "\t%s %s\n", path, m[2])
		} else {
			fmt.Fprintf(&indirect, "\t%s %s // indirect\n", path, m[2])
		}
	}
	text := fmt.Sprintf("module %s\n\ngo %s.0\n\ntool %s\n\nrequire (\n\t%s v0.0.0\n%s)\n\nrequire (\n%s)\n\nreplace %s => %s\n",
		o.Module, goMinor, imageTool, drover, direct.String(), indirect.String(), drover, sources)
	return map[string][]byte{"go.mod": []byte(text), "go.sum": sum}, nil
}
