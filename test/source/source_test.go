// SPDX-License-Identifier: Apache-2.0

// Package source tests rules about the source that no linter has.
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

// loggedAndReturned finds errors that a block logs and then returns: whoever gets them logs them
// again.
func loggedAndReturned(t *testing.T, name string, source any) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		var list []ast.Stmt
		switch block := n.(type) {
		case *ast.BlockStmt:
			list = block.List
		case *ast.CaseClause:
			list = block.Body
		case *ast.CommClause:
			list = block.Body
		}
		for i := 1; i < len(list); i++ {
			if logged := loggedBy(list[i-1]); logged != "" && returns(list[i], logged) {
				found = append(found, files.Position(list[i].Pos()).String())
			}
		}
		return true
	})
	return found
}

// loggedBy is the name of the error that a statement logs: logger.Error(err, …).
func loggedBy(statement ast.Stmt) string {
	expression, ok := statement.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	call, ok := expression.X.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return ""
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	logged, isName := call.Args[0].(*ast.Ident)
	if !ok || !isName || method.Sel.Name != "Error" {
		return ""
	}
	return logged.Name
}

func returns(statement ast.Stmt, name string) bool {
	found := false
	if back, ok := statement.(*ast.ReturnStmt); ok {
		for _, result := range back.Results {
			ast.Inspect(result, func(n ast.Node) bool {
				if ident, ok := n.(*ast.Ident); ok && ident.Name == name {
					found = true
				}
				return true
			})
		}
	}
	return found
}

// TestErrorsAreReturnedNotLogged looks at all of the product.
func TestErrorsAreReturnedNotLogged(t *testing.T) {
	looked := 0
	for _, dir := range []string{"../../api", "../../cmd", "../../internal"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			looked++
			for _, at := range loggedAndReturned(t, path, nil) {
				t.Errorf("%s: the error was logged and is returned", at)
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

// TestTheRuleFindsWhatItIsAbout shows that it can fail.
func TestTheRuleFindsWhatItIsAbout(t *testing.T) {
	for body, then := range map[string]int{
		`log.Error(err, "no"); return err`:                                        1,
		`if err != nil { log.Error(err, "no"); return 0, wrap(err) }`:             1,
		`switch { case true: log.FromContext(ctx).Error(err, "no"); return err }`: 1,
		`log.Error(err, "no"); return nil`:                                        0,
		`log.Info("no"); return err`:                                              0,
		`log.Error(err, "no"); err = again(); return err`:                         0,
	} {
		if got := loggedAndReturned(t, "x.go", "package x\nfunc f() error { "+body+" }"); len(got) != then {
			t.Errorf("%s: found %v", body, got)
		}
	}
}
