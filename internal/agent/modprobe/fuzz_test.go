// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// FuzzParse: a command line names nothing that is not among its words.
func FuzzParse(f *testing.F) {
	f.Add("-vd\n/tmp/opt\nmod-a\nx=1")
	f.Add("--dirname=/tmp\n--re\n-ab\n--\n-f")
	f.Add("-r\nC\n-C")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		c := Parse(args)
		for _, m := range c.Modules {
			if !slices.ContainsFunc(args, func(word string) bool { return kmod.NormalizeName(word) == m }) {
				t.Errorf("module %q of %q", m, args)
			}
		}
		for _, p := range c.Params {
			if !slices.Contains(args, p) {
				t.Errorf("parameter %q of %q", p, args)
			}
		}
		if len(c.Modules)+len(c.Params) > len(args) || c.Remove && len(c.Params) > 0 {
			t.Errorf("%+v of %q", c, args)
		}
	})
}

// FuzzOwnArgs: what we ask of modprobe is what it understands.
func FuzzOwnArgs(f *testing.F) {
	f.Add("mod-a", "/opt", "x=1")
	f.Add("m", "", "a=b c")
	f.Fuzz(func(t *testing.T, name, dir, parameter string) {
		if name == "" || name[0] == '-' || parameter == "" || parameter[0] == '-' {
			t.Skip("the API takes no such name")
		}
		s := &v1beta1.ModprobeSpec{ModuleName: name, DirName: dir, Parameters: []string{parameter}}
		load, unload := Parse(LoadArgs(s)), Parse(UnloadArgs(s))
		if load.Remove || load.Force || !slices.Equal(load.Modules, []string{kmod.NormalizeName(name)}) ||
			!slices.Equal(load.Params, s.Parameters) {
			t.Errorf("load: %+v", load)
		}
		if !unload.Remove || !slices.Equal(unload.Modules, load.Modules) {
			t.Errorf("unload: %+v", unload)
		}
	})
}

// FuzzFailure: what modprobe says becomes one bounded line of UTF-8.
func FuzzFailure(f *testing.F) {
	f.Add("modprobe: ERROR: could not insert 'm': No such device\n")
	f.Add("modprobe: FATAL: Module m is in use.\ninsmod x\n")
	f.Add("could not remove 'a': \xff")
	f.Add("")
	ended := errors.New("exit status 1")
	f.Fuzz(func(t *testing.T, said string) {
		if err := failure(nil, said); err != nil {
			t.Errorf("it ended well: %v", err)
		}
		e, ok := errors.AsType[*Error](failure(ended, said))
		if !ok || e.Said == "" || len(e.Said) > maxClip+len("…") || !utf8.ValidString(e.Said) {
			t.Errorf("failure %+v", e)
		}
		if ok && e.Module != "" && !strings.Contains(said, e.Module) {
			t.Errorf("module %q", e.Module)
		}
	})
}
