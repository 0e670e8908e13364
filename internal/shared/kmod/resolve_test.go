// SPDX-License-Identifier: Apache-2.0

package kmod_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// files describes a tree in lines: "a: b c < d > e" is the module a, which depends on b and c, with
// soft dependencies d before and e after it; "=x" is built in; "x ~ y z" says that the alias x
// stands for y and z.
func files(lines ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	var builtin, aliases strings.Builder
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, "="); ok {
			fmt.Fprintf(&builtin, "kernel/%s.ko\n", name)
			continue
		}
		if alias, modules, ok := strings.Cut(line, " ~ "); ok {
			for module := range strings.FieldsSeq(modules) {
				fmt.Fprintf(&aliases, "alias %s %s\n", alias, module)
			}
			continue
		}
		line, post, _ := strings.Cut(line, ">")
		line, pre, _ := strings.Cut(line, "<")
		name, depends, _ := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		module := synth.Module{Name: name, Depends: strings.Fields(depends), SoftdepPre: strings.Fields(pre), SoftdepPost: strings.Fields(post)}
		fsys["kernel/"+name+".ko"] = &fstest.MapFile{Data: module.Bytes()}
	}
	if builtin.Len() > 0 {
		fsys["modules.builtin"] = &fstest.MapFile{Data: []byte(builtin.String())}
	}
	if aliases.Len() > 0 {
		fsys["modules.alias"] = &fstest.MapFile{Data: []byte("# comment\n" + aliases.String())}
	}
	return fsys
}

func TestResolve(t *testing.T) {
	type lines = []string
	for name, test := range map[string]struct {
		image, host lines
		want, order lines
		steps       string // names in order; those from the host with "@"
		err         error
	}{
		"one":                       {image: lines{"a"}, want: lines{"a"}, steps: "a"},
		"none":                      {image: lines{"a"}, steps: ""},
		"chain":                     {image: lines{"a: b", "b: c", "c"}, want: lines{"a"}, steps: "c b a"},
		"diamond":                   {image: lines{"a: b c", "b: d", "c: d", "d"}, want: lines{"a"}, steps: "d b c a"},
		"several wanted, each once": {image: lines{"a: c", "b: c", "c"}, want: lines{"b", "a", "c"}, steps: "c b a"},
		"dashes and underscores":    {image: lines{"a-a: b-b", "b_b"}, want: lines{"a-a"}, steps: "b_b a_a"},
		"dependency from the host": {image: lines{"v4l2loopback: videodev"}, host: lines{"videodev: mc", "mc"}, want: lines{"v4l2loopback"},
			steps: "mc@ videodev@ v4l2loopback"},
		"the image wins": {image: lines{"a: b", "b"}, host: lines{"a: x", "b: y"}, want: lines{"a"}, steps: "b a"},
		"the host's module needs one that the image replaces": {image: lines{"a: b", "c"}, host: lines{"b: c", "c"}, want: lines{"a"},
			steps: "c b@ a"},
		"only on the host":                   {host: lines{"a"}, want: lines{"a"}, steps: "a@"},
		"built in dependency":                {image: lines{"a: b"}, host: lines{"=b"}, want: lines{"a"}, steps: "a"},
		"built in although the image has it": {image: lines{"a: b", "b"}, host: lines{"=b"}, want: lines{"a"}, steps: "a"},
		"built in is what was asked for":     {image: lines{"a"}, host: lines{"=a"}, want: lines{"a"}, steps: ""},

		"soft dependencies":         {image: lines{"a: b < c > d", "b", "c", "d: e", "e"}, want: lines{"a"}, steps: "b c a e d"},
		"missing soft dependencies": {image: lines{"a < b > c"}, want: lines{"a"}, steps: "a"},
		"a soft dependency that cannot be satisfied leaves nothing": {image: lines{"a < b", "b: c x", "c"}, want: lines{"a"}, steps: "a"},
		"its parts may still come for another": {image: lines{"a < b d", "b: c x", "c", "d: c"}, want: lines{"a"},
			steps: "c d a"},
		"soft dependencies on each other":                  {image: lines{"a < b", "b < a"}, want: lines{"a"}, steps: "b a"},
		"a soft dependency that needs us comes not at all": {image: lines{"a < b", "b: a"}, want: lines{"a"}, steps: "a"},
		"and after us when it may":                         {image: lines{"a > b", "b: a"}, want: lines{"a"}, steps: "a b"},
		"post of a dependency":                             {image: lines{"a: b", "b > c", "c"}, want: lines{"a"}, steps: "b c a"},
		"post that waits for us":                           {image: lines{"a: b", "b > a"}, want: lines{"a"}, steps: "b a"},
		"soft dependency by alias": {image: lines{"a < crypto-crc32c"},
			host: lines{"crc32c_intel", "crc32c_generic", "crypto-crc32c ~ crc32c_intel crc32c_generic"}, want: lines{"a"},
			steps: "crc32c_intel@ crc32c_generic@ a"},
		"an alias wins over a name that is built in": {image: lines{"a < crc32"}, host: lines{"=crc32", "crc32_generic", "crc32 ~ crc32_generic"},
			want: lines{"a"}, steps: "crc32_generic@ a"},
		"a file wins over an alias":        {image: lines{"a < b", "b ~ c", "c"}, host: lines{"b"}, want: lines{"a"}, steps: "b@ a"},
		"device aliases stand for nothing": {image: lines{"a < pci:v*", "pci:v* ~ b", "b"}, want: lines{"a"}, steps: "a"},

		"loading order":                    {image: lines{"a", "b", "c"}, want: lines{"a"}, order: lines{"a", "b", "c"}, steps: "c b a"},
		"loading order after dependencies": {image: lines{"a: d", "b", "d"}, want: lines{"a"}, order: lines{"a", "b"}, steps: "d b a"},
		"loading order from the host":      {image: lines{"a"}, host: lines{"b-b"}, want: lines{"a"}, order: lines{"a", "b-b"}, steps: "b_b@ a"},
		"loading order that says the same": {image: lines{"a: b", "b"}, want: lines{"a"}, order: lines{"a", "b"}, steps: "b a"},

		"wanted is nowhere": {image: lines{"b"}, want: lines{"a-a"}, err: &kmod.NotFoundError{Module: "a_a"}},
		"dependency is nowhere": {image: lines{"a: b", "b: c"}, host: lines{"d"}, want: lines{"a"},
			err: &kmod.MissingDependencyError{Module: "b", Needs: "c"}},
		"loading order names nothing": {image: lines{"a"}, want: lines{"a"}, order: lines{"a", "b"},
			err: &kmod.MissingDependencyError{Module: "a", Needs: "b"}},
		"cycle": {image: lines{"a: b", "b: c", "c: b"}, want: lines{"a"},
			err: &kmod.CycleError{Modules: lines{"b", "c"}}},
		"needs itself": {image: lines{"a: a"}, want: lines{"a"}, err: &kmod.CycleError{Modules: lines{"a"}}},
		"cycle over both trees": {image: lines{"a: b"}, host: lines{"b: a"}, want: lines{"a"},
			err: &kmod.CycleError{Modules: lines{"a", "b"}}},
		"loading order against the dependencies": {image: lines{"a", "b: a"}, want: lines{"a"}, order: lines{"a", "b"},
			err: &kmod.CycleError{Modules: lines{"a", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			image, host := newTree(t, files(test.image...)), newTree(t, files(test.host...))
			steps, err := kmod.Resolve(kmod.Want{Modules: test.want, LoadOrder: test.order}, image, host)
			if diff := cmp.Diff(fmt.Sprint(test.err), fmt.Sprint(err)); diff != "" {
				t.Fatalf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.err, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.steps, describe(t, steps)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func describe(t *testing.T, steps []kmod.Step) string {
	t.Helper()
	names := make([]string, 0, len(steps))
	for _, step := range steps {
		if inPath, ok := kmod.ModuleName(step.Path); !ok || inPath != step.Name || step.Info == nil || step.Info.Name != step.Name {
			t.Errorf("step %+v is not about one module", step)
		}
		name := step.Name
		if step.From == kmod.Host {
			name += "@"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestResolveErrorsSayWhatToDo(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{&kmod.CycleError{Modules: []string{"a", "b"}}, "dependency cycle: a needs b needs a"},
		{&kmod.NotFoundError{Module: "a"}, "module a is neither in the image, nor on the host, nor built into the kernel"},
		{&kmod.MissingDependencyError{Module: "a", Needs: "b"}, "module a needs b, which is neither in the image, nor on the host, nor built " +
			"into the kernel"},
	} {
		if test.err.Error() != test.want {
			t.Errorf("%q, want %q", test.err, test.want)
		}
	}
}

func TestResolveUnreadable(t *testing.T) {
	fsys := files("a: b", "c < b")
	fsys["b.ko.xz"] = &fstest.MapFile{Data: []byte("\xfd7zXZ\x00")}
	image := newTree(t, fsys)
	_, err := kmod.Resolve(kmod.Want{Modules: []string{"a"}}, image, nil)
	if !errors.Is(err, kmod.ErrMalformed) || !strings.HasPrefix(err.Error(), "b.ko.xz: ") {
		t.Errorf("error %v", err)
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: []string{"c"}}, image, nil)
	if err != nil || describe(t, steps) != "c" {
		t.Errorf("as a soft dependency: %v, error %v", steps, err)
	}
}

// Optional dependencies that fail, each after trying all others, must not take exponential time.
func TestResolveIsBounded(t *testing.T) {
	var lines, names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("m%d", i))
	}
	for i, name := range names {
		lines = append(lines, fmt.Sprintf("%s: missing%d < %s", name, i, strings.Join(names, " ")))
		lines = append(lines, fmt.Sprintf("soft%s: %s < %s", name, name, strings.Join(names, " ")))
	}
	deep := "top < " + strings.Join(names, " ")
	for i := range 40 { // s0 tries s1…s39 and then fails, s1 tries s2…
		lines = append(lines, fmt.Sprintf("s%d: t%d gone", i, i), fmt.Sprintf("t%d < %s", i, strings.Join(softs(i+1), " ")))
	}
	lines = append(lines, deep+" "+strings.Join(softs(0), " "))
	_, err := kmod.Resolve(kmod.Want{Modules: []string{"top"}}, newTree(t, files(lines...)), nil)
	if err == nil || !strings.Contains(err.Error(), "too entangled") {
		t.Errorf("error %v", err)
	}
}

func softs(from int) []string {
	var names []string
	for i := from; i < 40; i++ {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	return names
}

func TestClosure(t *testing.T) {
	fsys := files("a: b videodev < c x", "b: mc", "c", "unrelated", "=builtin", "alias ~ c")
	fsys["modules.dep"] = empty
	got, err := kmod.Closure(kmod.Want{Modules: []string{"a"}, LoadOrder: []string{"a", "on-host"}}, newTree(t, fsys))
	if err != nil {
		t.Fatal(err)
	}
	want := kmod.Files{
		Modules: []string{"kernel/b.ko", "kernel/c.ko", "kernel/a.ko"},
		Indexes: []string{"modules.alias", "modules.builtin", "modules.dep"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := kmod.Closure(kmod.Want{Modules: []string{"mc"}}, newTree(t, fsys)); !errors.As(err, new(*kmod.NotFoundError)) {
		t.Errorf("error %v", err)
	}
}
