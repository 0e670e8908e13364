// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// platforms that our programs are compiled for. Another processor of the same system may link
// another module.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/arm64"}

// linkedModule is a Go module of which packages are in programs.
type linkedModule struct {
	Path, Version, Licence string
	// Programs by name, sorted.
	Programs []string
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath string
	// Imports are import paths as they are resolved: go list has applied its map of vendored ones.
	Imports []string
	Module  *struct {
		Path, Version string
		Main          bool
		Replace       *struct{ Path, Version string }
	}
}

// linked are the modules of all programs, by path. Programs are folders from the repository's root.
func linked(ctx context.Context, root string, programs []string) ([]*linkedModule, error) {
	found := map[string]*linkedModule{}
	for _, platform := range platforms {
		packages, own, err := list(ctx, root, platform, programs)
		if err != nil {
			return nil, err
		}
		for _, program := range programs {
			start := path.Join(own, program)
			if _, ok := packages[start]; !ok {
				return nil, fmt.Errorf("go list knows no package %s", start)
			}
			for _, p := range closure(packages, start) {
				add(found, p, path.Base(program))
			}
		}
	}
	modules := slices.SortedFunc(maps.Values(found), func(a, b *linkedModule) int { return cmp.Compare(a.Path, b.Path) })
	for _, m := range modules {
		slices.Sort(m.Programs)
		m.Programs = slices.Compact(m.Programs)
	}
	return modules, nil
}

// add notes that a program holds a package of another module.
func add(found map[string]*linkedModule, p listed, program string) {
	if p.Module == nil || p.Module.Main {
		return
	}
	from, version := p.Module.Path, p.Module.Version
	if p.Module.Replace != nil {
		from, version = p.Module.Replace.Path, p.Module.Replace.Version
	}
	if found[from] == nil {
		found[from] = &linkedModule{Path: from, Version: version}
	}
	found[from].Programs = append(found[from].Programs, program)
}

// list asks Go for the programs' packages with all that they import, by import path, and for the
// path of the repository's own module.
func list(ctx context.Context, root, platform string, programs []string) (packages map[string]listed, own string, err error) {
	system, processor, _ := strings.Cut(platform, "/")
	args := []string{"list", "-deps", "-json=ImportPath,Imports,Module"}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOOS="+system, "GOARCH="+processor)
	var said bytes.Buffer
	command.Stderr = &said
	output, err := command.Output()
	if err != nil {
		return nil, "", fmt.Errorf("list what is linked for %s: %w\n%s", platform, err, said.String())
	}
	packages = map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, own, nil
		} else if err != nil {
			return nil, "", fmt.Errorf("read what go list says: %w", err)
		}
		packages[p.ImportPath] = p
		if p.Module != nil && p.Module.Main {
			own = p.Module.Path
		}
	}
}

// closure are a package and all that it imports, directly or not.
func closure(packages map[string]listed, start string) []listed {
	seen := map[string]bool{start: true}
	open := []string{start}
	var all []listed
	for len(open) > 0 {
		p := packages[open[0]]
		all, open = append(all, p), open[1:]
		for _, name := range p.Imports {
			if !seen[name] {
				seen[name] = true
				open = append(open, name)
			}
		}
	}
	return all
}
