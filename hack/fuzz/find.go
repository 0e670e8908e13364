// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// targets are the fuzz targets of one package.
type targets struct {
	dir   string // with slashes, relative to the module
	names []string
}

// find reads the targets from the sources, which is faster than to compile all tests and ask them.
func find(root, only string) ([]targets, error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("ONLY: %w", err)
	}
	var found []targets
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if name != root && foreign(name) {
			return fs.SkipDir
		}
		names, err := inPackage(name)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		t := targets{dir: filepath.ToSlash(dir)}
		for _, one := range names {
			if pattern.MatchString(t.dir + "." + one) {
				t.names = append(t.names, one)
			}
		}
		if len(t.names) > 0 {
			found = append(found, t)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for targets: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no fuzz target matches %q", only)
	}
	return found, nil
}

// foreign is what belongs to no package of the module, as for the go command.
func foreign(dir string) bool {
	base := filepath.Base(dir)
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// inPackage are the names of the targets in a folder's tests, sorted.
func inPackage(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		// A file for another system or with a build tag is not among the tests.
		if ok, err := build.Default.MatchFile(dir, e.Name()); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && isTarget(f) {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// isTarget knows `func FuzzX(f *testing.F)`.
func isTarget(f *ast.FuncDecl) bool {
	if f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") || len(f.Type.Params.List) != 1 {
		return false
	}
	pointer, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	kind, ok := pointer.X.(*ast.SelectorExpr)
	return ok && kind.Sel.Name == "F"
}

// importPath names the package to the go command.
func (t *targets) importPath() string {
	if t.dir == "." {
		return "."
	}
	return "./" + path.Clean(t.dir)
}
