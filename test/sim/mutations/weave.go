// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
)

// mutationVariable is the environment variable that tells a woven program which mutation it has.
// The simulation sets it before each history that it is asked for.
const mutationVariable = "DROVER_SIM_MUTATION"

// sources are files of the product, by their names from the repository's folder.
type sources map[string][]byte

// weave puts mutations into their files so that one program has them all: each function with
// mutations is kept, copied once for each, and called through a new one that asks which to take.
// Those that are not in a function, such as a struct's tag, are left over.
func weave(product sources, all []mutation) (woven sources, left []mutation, err error) {
	woven = sources{}
	packages := map[string]string{}
	for i := range all {
		file := all[i].File
		if woven[file] != nil {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(all), func(m mutation) bool { return m.File != file })
		w, err := weaveFile(product[file], of)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		woven[file], packages[path.Dir(file)] = w.text, w.name
		left = append(left, w.left...)
	}
	for dir, name := range packages {
		woven[path.Join(dir, "zz_mutation.go")] = fmt.Appendf(nil, "package %s\n\nimport \"os\"\n\n"+
			"func mutationNow() string { return os.Getenv(%q) }\n", name, mutationVariable)
	}
	return woven, left, nil
}

// wovenFile is a file with its mutations, but for those that are left over; name is its package's.
type wovenFile struct {
	text []byte
	name string
	left []mutation
}

// weaveFile weaves the mutations of one file.
func weaveFile(text []byte, all []mutation) (*wovenFile, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	var out bytes.Buffer
	end, left := 0, slices.Clone(all)
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from, to := offset(f.Pos()), offset(f.End())
		of := slices.DeleteFunc(slices.Clone(all), func(m mutation) bool { return !within(text, &m, from, to) })
		if len(of) == 0 {
			continue
		}
		out.Write(text[end:from])
		left = slices.DeleteFunc(left, func(m mutation) bool { return within(text, &m, from, to) })
		at := offset(f.Name.Pos()) - from
		weaveFunction(&out, &function{f, text[from:to], at, func(n ast.Node) string { return string(text[offset(n.Pos()):offset(n.End())]) }}, of)
		end = to
	}
	out.Write(text[end:])
	return &wovenFile{out.Bytes(), file.Name.Name, left}, nil
}

// within says whether what a mutation changes is in a part of a file.
func within(text []byte, m *mutation, from, to int) bool {
	at := bytes.Index(text, []byte(m.Old))
	return at >= from && at+len(m.Old) <= to
}

// function is one that is mutated.
type function struct {
	*ast.FuncDecl
	text []byte
	at   int // where its name is
	of   func(ast.Node) string
}

// named is the function's text with something after its name.
func (f *function) named(text, suffix string) string {
	end := f.at + len(f.Name.Name)
	return text[:end] + suffix + text[end:]
}

// weaveFunction writes the function that asks, the one that is kept, and one for each mutation.
// What the compiler says of a mutation begins with its name.
func weaveFunction(out *bytes.Buffer, f *function, all []mutation) {
	var parameters, given []string
	for i, p := range fields(f.Type.Params) {
		parameters = append(parameters, fmt.Sprintf("p%d %s", i, f.of(p)))
		dots := ""
		if _, ok := p.(*ast.Ellipsis); ok {
			dots = "..."
		}
		given = append(given, fmt.Sprintf("p%d%s", i, dots))
	}
	receiver, on, types, results, gives := "", "", "", "", ""
	if f.Recv != nil {
		receiver, on = "(on "+f.of(f.Recv.List[0].Type)+") ", "on."
	}
	if f.Type.TypeParams != nil {
		types = f.of(f.Type.TypeParams)
	}
	if f.Type.Results != nil {
		results, gives = f.of(f.Type.Results)+" ", "return "
	}
	fmt.Fprintf(out, "func %s%s%s(%s) %s{\n", receiver, f.Name.Name, types, strings.Join(parameters, ", "), results)
	call := func(suffix string) string {
		return fmt.Sprintf("%s%s%s%s(%s)", gives, on, f.Name.Name, suffix, strings.Join(given, ", "))
	}
	out.WriteString("\tswitch mutationNow() {\n")
	for i := range all {
		fmt.Fprintf(out, "\tcase %q:\n\t\t%s\n", all[i].Name, call(fmt.Sprint("Mutated", i)))
		if gives == "" {
			out.WriteString("\t\treturn\n")
		}
	}
	fmt.Fprintf(out, "\t}\n\t%s\n}\n\n%s\n", call("AsItIs"), f.named(string(f.text), "AsItIs"))
	for i := range all {
		mutated := strings.Replace(string(f.text), all[i].Old, all[i].New, 1)
		fmt.Fprintf(out, "\n//line %s:1\n%s\n", all[i].Name, f.named(mutated, fmt.Sprint("Mutated", i)))
	}
}

// fields are the types of parameters, one for each parameter.
func fields(list *ast.FieldList) (types []ast.Expr) {
	for _, f := range list.List {
		for range max(len(f.Names), 1) {
			types = append(types, f.Type)
		}
	}
	return types
}
