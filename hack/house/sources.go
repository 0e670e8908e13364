// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds, in files and lines, in characters of a line, and in bytes of a file.
const (
	maxFiles     = 12
	maxFile      = 400
	maxFunction  = 60
	maxReconcile = 40
	maxReadme    = 90
	maxProse     = 140
	maxCode      = 140
	maxComment   = 100
	maxBytes     = 1 << 20
)

// house is what has been seen.
type house struct {
	root       string
	packages   map[string]int
	files, loc int
	problems   []string
	// declared and reported are the names of reasons.
	declared, reported []string
}

func (h *house) tell(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// sorted are the problems, in order.
func (h *house) sorted() []string {
	slices.Sort(h.problems)
	return h.problems
}

// look reads every file that git knows.
func (h *house) look() error {
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = h.root
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	h.packages = map[string]int{}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(h.root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return fmt.Errorf("read a file: %w", err)
		}
		h.size(name, len(content))
		switch path.Ext(name) {
		case ".go":
			if err := h.source(name, content); err != nil {
				return err
			}
			h.reasonsIn(name, string(content))
		case ".md":
			h.prose(name, string(content))
		}
	}
	for dir, n := range h.packages {
		if n > maxFiles {
			h.tell("%s: %d files, and at most %d", dir, n, maxFiles)
		}
	}
	h.reasons()
	return h.links()
}

// size looks at how large a file is. git add takes a built program like any source, and once that is
// pushed, every clone carries it.
func (h *house) size(name string, n int) {
	if n > maxBytes {
		h.tell("%s is %d bytes: at most %d; build products are not tracked", name, n, maxBytes)
	}
}

// source looks at one file of Go. What is generated is nobody's to shorten.
func (h *house) source(name string, content []byte) error {
	if bytes.Contains(content, []byte("// Code generated ")) || strings.Contains(name, "/testdata/") {
		return nil
	}
	dir, lines := path.Dir(name), bytes.Count(content, []byte("\n"))
	h.files++
	if lines > maxFile {
		h.tell("%s: %d lines, and at most %d", name, lines, maxFile)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	h.widths(name, string(content), rawLines(files, file))
	test := strings.HasSuffix(name, "_test.go")
	if _, known := h.packages[dir]; !known {
		h.packages[dir] = 0
	}
	if test {
		return nil
	}
	h.packages[dir]++
	if ofProduct(dir) {
		h.loc += lines
	}
	h.functions(files, file)
	return h.pure(name, file)
}

// widths looks at how wide lines are. What stands in a raw string, a marker or a directive is as
// wide as it must be.
func (h *house) widths(name, content string, raw map[int]bool) {
	for i, line := range strings.Split(content, "\n") {
		text, most := strings.TrimLeft(line, "\t"), maxCode
		if strings.HasPrefix(text, "// ") {
			most = maxComment
		}
		marker := strings.HasPrefix(text, "// +") || strings.Contains(text, "//nolint:")
		if n := utf8.RuneCountInString(line); n > most && !raw[i+1] && !marker {
			h.tell("%s:%d: %d characters, and at most %d", name, i+1, n, most)
		}
	}
}

// rawLines are the lines on which raw strings stand.
func rawLines(files *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(l.Value, "`") {
			for i := files.Position(l.Pos()).Line; i <= files.Position(l.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

func (h *house) functions(files *token.FileSet, file *ast.File) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		most, lines := maxFunction, files.Position(f.End()).Line-files.Position(f.Pos()).Line+1
		if f.Name.Name == "Reconcile" {
			most = maxReconcile
		}
		if lines > most {
			h.tell("%s: %s has %d lines, and at most %d", files.Position(f.Pos()), f.Name.Name, lines, most)
		}
	}
}

// purePackages decide, and touch nothing.
var purePackages = []string{
	"internal/shared/desired", "internal/operator/nodeplan", "internal/shared/rollout", "internal/shared/status", "internal/shared/facts",
	"internal/shared/reasons", "internal/shared/placement", "internal/shared/reported",
	"internal/shared/strikes", "internal/shared/modulepolicy", "internal/shared/nodemarks", "internal/agent/decide",
}

// impure are imports by which code touches something, with what is below them.
var impure = []string{"os", "net", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/klog"}

func (h *house) pure(name string, file *ast.File) error {
	if !slices.Contains(purePackages, path.Dir(name)) {
		return nil
	}
	for _, i := range file.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, bad := range impure {
			if imported == bad || strings.HasPrefix(imported, bad+"/") {
				h.tell("%s: imports %s, and the package is pure", name, imported)
			}
		}
	}
	return nil
}

// apart are folders of no product, and of the hub.
var apart = []string{
	"test", "hack", "images", "tools", "samples", "kit/kittest", "internal/testkit", "internal/agent/hollow", "internal/agent/host/fake", "internal/shared/kmod/synth",
	"cmd/drover-hollow", "internal/hub", "internal/operator/controller/hub", "internal/operator/controller/claims", "internal/cli/managed", "api/hub",
	"internal/operators", "internal/operators/lolcow/cow", "internal/operators/deviceconfig/nodeselector", "api/deviceconfig", "api/lolcow", "api/ptemplate",
	"cmd/deviceconfig-operator", "cmd/lolcow", "cmd/lolcow-operator", "cmd/ptemplate-operator",
}

func ofProduct(dir string) bool {
	return !slices.ContainsFunc(apart, func(a string) bool { return dir == a || strings.HasPrefix(dir, a+"/") })
}

// prose looks at one page. Tables, code, headings and lines of one link cannot be wrapped.
func (h *house) prose(name, content string) {
	if lines := strings.Count(content, "\n"); name == "README.md" && lines > maxReadme {
		h.tell("%s: %d lines, and at most %d", name, lines, maxReadme)
	}
	code := false
	for i, line := range strings.Split(content, "\n") {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "```") {
			code = !code
		}
		if code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "```") || strings.HasPrefix(text, "<img ") {
			continue
		}
		if n := utf8.RuneCountInString(line); n > maxProse && strings.Contains(text, " ") {
			h.tell("%s:%d: %d characters, and at most %d", name, i+1, n, maxProse)
		}
	}
}
