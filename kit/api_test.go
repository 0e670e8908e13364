// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/api.txt anew")

// promised are the packages that docs/reference/compatibility.md speaks of.
var promised = []string{".", "labels"}

// TestThePublicAPIIsWhatIsPromised: whoever changes what others build on does it knowingly. Run it
// with -update, and read the difference as they will.
func TestThePublicAPIIsWhatIsPromised(t *testing.T) {
	var text strings.Builder
	for _, dir := range promised {
		lines, err := exported(dir)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "package %s\n\n%s\n", filepath.Join("kit", dir), strings.Join(lines, "\n"))
	}
	const file = "testdata/api.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("the public API has changed (-promised +now). If it has to: go test ./kit -run %s -update, and a line in CHANGELOG.md\n%s",
			t.Name(), diff)
	}
}

// exported are the exported declarations of a package without comments and bodies, in the order of
// their names.
func exported(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var lines []string
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.FileExports(file)
		for _, declaration := range file.Decls {
			if g, ok := declaration.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			if f, ok := declaration.(*ast.FuncDecl); ok {
				f.Body = nil
			}
			var out bytes.Buffer
			if err := printer.Fprint(&out, fset, declaration); err != nil {
				return nil, err
			}
			lines = append(lines, out.String()+"\n")
		}
	}
	slices.Sort(lines)
	return lines, nil
}
