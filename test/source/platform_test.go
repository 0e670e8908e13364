// SPDX-License-Identifier: Apache-2.0

package source

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// readers of a node's kernel version and processor, as a kubelet reports them.
var readers = map[string]string{
	"internal/shared/kernel/platform.go":     "checks them, for all others",
	"internal/shared/placement/placement.go": "compares the processor with those that there are",
	"internal/shared/reported/objects.go":    "cleans them, for people",
	"internal/operator/cache.go":             "shares the memory of equal texts",
}

// platformReads finds reads of a node's kernel version and processor: x.NodeInfo.KernelVersion, and
// the same of a parameter or variable that is a NodeInfo.
func platformReads(t *testing.T, name string, source any) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	infos := map[string]bool{} // by name, in the whole file: a name that means both is found too often, never too seldom
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if selected(n.Type, "NodeSystemInfo") {
				for _, name := range n.Names {
					infos[name.Name] = true
				}
			}
		case *ast.AssignStmt:
			for i, value := range n.Rhs {
				if i < len(n.Lhs) && selected(value, "NodeInfo") {
					if ident, ok := n.Lhs[i].(*ast.Ident); ok {
						infos[ident.Name] = true
					}
				}
			}
		}
		return true
	})
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		read, ok := n.(*ast.SelectorExpr)
		if !ok || read.Sel.Name != "KernelVersion" && read.Sel.Name != "Architecture" {
			return true
		}
		if of, ok := read.X.(*ast.Ident); selected(read.X, "NodeInfo") || ok && infos[of.Name] {
			found = append(found, files.Position(read.Pos()).String())
		}
		return true
	})
	return found
}

// selected reports whether an expression is x.name, &x.name or *x.name.
func selected(e ast.Expr, name string) bool {
	switch of := e.(type) {
	case *ast.UnaryExpr:
		return selected(of.X, name)
	case *ast.StarExpr:
		return selected(of.X, name)
	case *ast.SelectorExpr:
		return of.Sel.Name == name
	}
	return false
}

// TestOneDoorForKernelVersions: what a kubelet reports is free text, and builds run commands with
// it. kernel.PlatformOf checks it.
func TestOneDoorForKernelVersions(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range []string{"api", "cmd", "internal", "kit"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testkit/") {
				return err
			}
			name, err := filepath.Rel(root, path)
			found := platformReads(t, path, nil)
			if len(found) > 0 && readers[name] == "" {
				t.Errorf("%s: use kernel.PlatformOf, or kernel.Show for people", strings.Join(found, ", "))
			}
			seen[name] = len(found) > 0
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range readers {
		if !seen[name] {
			t.Errorf("%s reads neither: remove it from the list", name)
		}
	}
}

// TestTheDoorIsFound shows that the rule can fail.
func TestTheDoorIsFound(t *testing.T) {
	for body, then := range map[string]int{
		"func f(n *v1.Node) string { return n.Status.NodeInfo.KernelVersion }":                                            1,
		"func f(i *v1.NodeSystemInfo) string { return i.KernelVersion + i.Architecture }":                                 2,
		"func f(n *v1.Node) string { info := &n.Status.NodeInfo; return info.Architecture }":                              1,
		"func f(p *v1.PreflightValidation, n *v1.Node) string { return p.Spec.KernelVersion + n.Status.NodeInfo.BootID }": 0,
	} {
		if got := platformReads(t, "x.go", "package x\n"+body); len(got) != then {
			t.Errorf("%s: found %v", body, got)
		}
	}
}
