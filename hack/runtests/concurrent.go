// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// testers are folders of packages that test something else: other processes, or the sources.
var testers = regexp.MustCompile(`^(hack|internal/testkit|test)(/|$)`)

// concurrentImports are of packages whose code runs beside itself: what is locked, and what
// controller-runtime calls from several goroutines.
var concurrentImports = regexp.MustCompile(`^(sync|sync/atomic|golang\.org/x/sync/.*|` +
	`sigs\.k8s\.io/controller-runtime(/pkg/(builder|controller|handler|manager|reconcile|source))?)$`)

// concurrent is true for a package with code or tests that run beside themselves. It lies in dir;
// folder is its path below the repository's root. Only there the race detector can find something;
// elsewhere, it would have everything compiled and linked a second time.
func concurrent(dir, folder string) (bool, error) {
	if testers.MatchString(filepath.ToSlash(folder)) {
		return false, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, fmt.Errorf("list the files of %s: %w", folder, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return false, nil //nolint:nilerr // the compiler says it better
		}
		if runsBesideItself(file) {
			return true, nil
		}
	}
	return false, nil
}

func runsBesideItself(file *ast.File) (found bool) {
	for _, i := range file.Imports {
		if concurrentImports.MatchString(strings.Trim(i.Path.Value, `"`)) {
			return true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr: // t.Parallel()
			found = found || n.Sel.Name == "Parallel"
		}
		return !found
	})
	return found
}
