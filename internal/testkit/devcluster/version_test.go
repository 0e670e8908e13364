// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersionAsked: the environment chooses the minor version, and one that cannot be built is
// refused with those that can.
func TestVersionAsked(t *testing.T) {
	sources := filepath.Join("..", "..", "..", "tools", "devcluster")
	for asked, want := range map[string]struct{ name, modfile, version, err string }{
		"":        {name: "devcluster", modfile: "go.mod", version: defaultVersion},
		"1.37":    {name: "devcluster", modfile: "go.mod", version: defaultVersion},
		"1.36":    {name: "devcluster-1.36", modfile: "go-1.36.mod", version: "1.36"},
		"1.31":    {name: "devcluster-1.31", modfile: "go-1.31.mod", version: "1.31"},
		"1.31.x":  {name: "devcluster-1.31", modfile: "go-1.31.mod", version: "1.31"},
		"v1.33.2": {name: "devcluster-1.33", modfile: "go-1.33.mod", version: "1.33"},
		"1.30": {name: "devcluster-1.30", modfile: "go-1.30.mod", err: "no such file or directory; KUBERNETES is the version of Kubernetes, " +
			"one of 1.31, 1.33, 1.34, 1.36, 1.37"},
		"latest": {err: `KUBERNETES="latest" is not a version of Kubernetes like 1.31`},
	} {
		t.Run(asked, func(t *testing.T) {
			t.Setenv(VersionVariable, asked)
			got, err := devclusterTarget.asked()
			if err == nil && (got.name != want.name || got.modfile() != want.modfile) {
				t.Errorf("%s by %s", got.name, got.modfile())
			}
			var flags []string
			if err == nil {
				flags, err = buildFlags(sources, got.modfile())
			}
			if want.err != "" || err != nil {
				if err == nil || want.err == "" || !strings.Contains(err.Error(), want.err) {
					t.Fatalf("%v, want %q", err, want.err)
				}
				return
			}
			if !strings.Contains(strings.Join(flags, " "), ".gitVersion=v"+want.version+".") {
				t.Errorf("the flags are %q", flags)
			}
		})
	}
}

// TestKeysOfVersions: a change of one version's modules builds that version again, and no other.
func TestKeysOfVersions(t *testing.T) {
	sources := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "go-1.31.mod", "go-1.31.sum", "main.go"} {
		if err := os.WriteFile(filepath.Join(sources, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() (keys []string) {
		for _, version := range []string{defaultVersion, "1.31"} {
			key, err := buildKey(sources, devclusterTarget.of(version), nil)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		return keys
	}
	before := keys()
	for name, want := range map[string][]bool{
		"go.mod": {true, false}, "go.sum": {true, false}, "go-1.31.mod": {false, true}, "go-1.31.sum": {false, true}, "main.go": {true, true},
		"main_test.go": {false, false},
	} {
		if err := os.WriteFile(filepath.Join(sources, name), []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		after := keys()
		for i := range want {
			if got := before[i] != after[i]; got != want[i] {
				t.Errorf("%s: key %d changes: %v", name, i, got)
			}
		}
		before = after
	}
}
