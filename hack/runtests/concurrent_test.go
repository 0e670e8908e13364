// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestConcurrent(t *testing.T) {
	cases := map[string]struct {
		source string
		// folder is internal/p if empty.
		folder string
		want   bool
	}{
		"a pure function":                 {source: `func f() int { return 1 }`},
		"a goroutine":                     {source: `func f() { go f() }`, want: true},
		"a goroutine in a literal":        {source: `var f = func() { go println() }`, want: true},
		"a lock":                          {source: `import "sync"; var mu sync.Mutex`, want: true},
		"an atomic value":                 {source: `import "sync/atomic"; var n atomic.Int64`, want: true},
		"a reconciler":                    {source: `import r "sigs.k8s.io/controller-runtime/pkg/reconcile"; var _ r.Request`, want: true},
		"a reconciler by the short name":  {source: `import ctrl "sigs.k8s.io/controller-runtime"; var _ ctrl.Request`, want: true},
		"a client":                        {source: `import "sigs.k8s.io/controller-runtime/pkg/client"; var _ client.Client`},
		"tests that run at the same time": {source: `func f(t interface{ Parallel() }) { t.Parallel() }`, want: true},
		"a test of other processes":       {source: `func f() { go f() }`, folder: "test/e2e"},
		"a tool":                          {source: `func f() { go f() }`, folder: "hack/fuzz"},
		"a folder that begins like tests": {source: `func f() { go f() }`, folder: "testing/x", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string]string{"a.go": "", "b_test.go": tc.source} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("package p\n"+content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			folder := tc.folder
			if folder == "" {
				folder = "internal/p"
			}
			got, err := concurrent(dir, folder)
			if err != nil || got != tc.want {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestWhatIsTestedWithTheRaceDetector is about this tree.
func TestWhatIsTestedWithTheRaceDetector(t *testing.T) {
	race, plain, err := choose(t.Context(), selection{packages: module + "..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"internal/agent", "internal/operator", "internal/operator/controller/module", "internal/operator/controller/node",
		"internal/operators/deviceconfig", "internal/shared/kube", "internal/hub/direct", "kit",
	} {
		if !slices.Contains(race, module+name) {
			t.Errorf("%s is tested without it", name)
		}
	}
	for _, name := range []string{"images", "internal/operator/nodeplan", "test/e2e"} {
		if !slices.Contains(plain, module+name) {
			t.Errorf("%s is tested with it", name)
		}
	}
	only, none, err := choose(t.Context(), selection{packages: module + "...", concurrent: true})
	if err != nil || len(none) > 0 || !slices.Equal(only, race) {
		t.Errorf("-concurrent: %v and %v, %v", only, none, err)
	}
}
