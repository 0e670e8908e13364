// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestWeaveAll: what is woven of the sources as they are can be parsed again.
func TestWeaveAll(t *testing.T) {
	product, err := read(root, mutations)
	if err != nil {
		t.Fatal(err)
	}
	woven, left, err := weave(product, mutations)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range woven {
		if _, err := weaveFile(text, nil); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for i := range left {
		t.Logf("%s gets a program of its own", left[i].Name)
	}
	if len(left) > 3 {
		t.Errorf("%d mutations are in no function: each costs a compilation", len(left))
	}
}

func TestWeave(t *testing.T) {
	const text = "package p\n\ntype t struct {\n\ta int `json:\"a\"`\n}\n\nfunc (t) f(_ int, more ...string) (n int, err error) {\n" +
		"\treturn len(more), nil\n}\n\nfunc g[T any](x, y T) { _, _ = x, y }\n"
	all := []mutation{
		{Name: "one", File: "d/p.go", Old: "len(more)", New: "0"},
		{Name: "two", File: "d/p.go", Old: "_, _ = x, y", New: "_, _ = y, x"},
		{Name: "three", File: "d/p.go", Old: "json:\"a\"", New: "json:\"b\""},
	}
	woven, left, err := weave(sources{"d/p.go": []byte(text)}, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name != "three" {
		t.Errorf("left over: %v", left)
	}
	for _, want := range []string{
		"func (on t) f(p0 int, p1 ...string) (n int, err error) {\n" +
			"\tswitch mutationNow() {\n\tcase \"one\":\n\t\treturn on.fMutated0(p0, p1...)\n\t}\n\treturn on.fAsItIs(p0, p1...)\n}\n",
		"//line one:1\nfunc (t) fMutated0(_ int, more ...string) (n int, err error) {\n\treturn 0, nil\n}\n",
		"func g[T any](p0 T, p1 T) {\n\tswitch mutationNow() {\n\tcase \"two\":\n\t\tgMutated0(p0, p1)\n\t\treturn\n\t}\n\tgAsItIs(p0, p1)\n}\n",
	} {
		if !strings.Contains(string(woven["d/p.go"]), want) {
			t.Errorf("no\n%s\nin\n%s", want, woven["d/p.go"])
		}
	}
	if !strings.Contains(string(woven["d/zz_mutation.go"]), mutationVariable) {
		t.Errorf("nothing asks for the mutation: %v", woven)
	}
}
