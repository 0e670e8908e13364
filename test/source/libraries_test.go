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

// handRolled finds what k8s.io/utils/ptr, controllerutil, metav1 and api/meta have: functions that
// return a pointer to their argument, owner references and finalizers written out, and conditions
// that are looked for by hand.
func handRolled(t *testing.T, name string, source any) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	tell := func(n ast.Node, instead string) {
		found = append(found, files.Position(n.Pos()).String()+": "+instead)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if pointsToItsArgument(n) {
				tell(n, "ptr.To")
			}
		case *ast.CompositeLit:
			if selector, ok := n.Type.(*ast.SelectorExpr); ok && selector.Sel.Name == "OwnerReference" && len(n.Elts) > 0 {
				tell(n, "controllerutil.SetControllerReference or metav1.NewControllerRef")
			}
		case *ast.AssignStmt:
			if call, ok := n.Rhs[0].(*ast.CallExpr); ok && selects(n.Lhs[0], "Finalizers") && isAppend(call) {
				tell(n, "controllerutil.AddFinalizer")
			}
		case *ast.RangeStmt:
			if selects(n.X, "Conditions") && comparesType(n.Body) {
				tell(n, "meta.FindStatusCondition")
			}
		}
		return true
	})
	return found
}

// pointsToItsArgument is true for func f(x T) *T { return &x }.
func pointsToItsArgument(f *ast.FuncDecl) bool {
	if f.Recv != nil || f.Body == nil || len(f.Body.List) != 1 || len(f.Type.Params.List) != 1 || len(f.Type.Params.List[0].Names) != 1 {
		return false
	}
	back, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(back.Results) != 1 {
		return false
	}
	address, ok := back.Results[0].(*ast.UnaryExpr)
	if !ok || address.Op != token.AND {
		return false
	}
	name, ok := address.X.(*ast.Ident)
	return ok && name.Name == f.Type.Params.List[0].Names[0].Name
}

func selects(e ast.Expr, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == name
}

func isAppend(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "append"
}

// comparesType is true where a block has x.Type == …: a loop that looks for a condition. Conditions
// of nodes, pods and Jobs are of types of their own, for which there is no library.
func comparesType(block *ast.BlockStmt) bool {
	found := false
	ast.Inspect(block, func(n ast.Node) bool {
		if compare, ok := n.(*ast.BinaryExpr); ok && compare.Op == token.EQL {
			found = found || selects(compare.X, "Type") && !builtIn(compare.Y) || selects(compare.Y, "Type") && !builtIn(compare.X)
		}
		return !found
	})
	return found
}

// builtIn is true for constants of the API of Kubernetes.
func builtIn(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && (pkg.Name == "corev1" || pkg.Name == "batchv1" || pkg.Name == "appsv1")
}

// TestLibrariesAreUsed looks at all of the product.
func TestLibrariesAreUsed(t *testing.T) {
	looked := 0
	for _, dir := range []string{"api", "cmd", "internal", "kit"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "applyconfiguration") || strings.Contains(path, "testkit") {
				return err
			}
			looked++
			for _, at := range handRolled(t, path, nil) {
				t.Errorf("use the library: %s", at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 100 {
		t.Errorf("only %d files were looked at", looked)
	}
}

// TestHandRolledIsFound shows that the rule can fail.
func TestHandRolledIsFound(t *testing.T) {
	for code, then := range map[string]int{
		`func pointer[T any](v T) *T { return &v }`:                                       1,
		`func str(v string) *string { return &v }`:                                        1,
		`func (t T) str(v string) *string { return &v }`:                                  0,
		`func fresh(v string) *S { return &S{v} }`:                                        0,
		`func f() { o.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }`:           0,
		`func f() { r := metav1.OwnerReference{Name: "x"}; _ = r }`:                       1,
		`func f() { o.Finalizers = append(o.Finalizers, "x/y") }`:                         1,
		`func f() { for _, c := range s.Conditions { if c.Type == "Ready" { return } } }`: 1,
		`func f() { for _, c := range s.Conditions { show(c.Type) } }`:                    0,
	} {
		if got := handRolled(t, "x.go", "package x\n"+code); len(got) != then {
			t.Errorf("%s: found %v", code, got)
		}
	}
}
