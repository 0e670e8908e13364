// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestOotoIsOptIn: a plain install has nothing of the older group; the component adds its CRD,
// roles, policy and the operator's switch.
func TestOotoIsOptIn(t *testing.T) {
	root, err := filepath.Abs(config)
	if err != nil {
		t.Fatal(err)
	}
	render := func(kustomization string) (objects int, text string) {
		dir, err := os.MkdirTemp(root, "rendered-") // kustomize takes relative paths only
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}()
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Fatal(err)
		}
		yaml, err := all.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		return all.Size(), string(yaml)
	}
	plain, text := render("resources: [../default]\n")
	if strings.Contains(text, "ooto") {
		t.Error("config/default has something of ooto.sigs.k8s.io")
	}
	more, text := render("resources: [../default]\ncomponents: [../ooto]\n")
	if more -= plain; more != 7 {
		t.Errorf("%d objects more than config/default, want 7", more)
	}
	for _, want := range []string{"\n        - --controllers=*,ooto\n", "\n    api-approved.kubernetes.io: unapproved, experimental-only\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("what the component renders lacks %q", want)
		}
	}
}
