// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/shared/kube"
)

func TestBackoff(t *testing.T) {
	limiter, node := kube.Backoff(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}}
	want := 50 * time.Millisecond
	for range 40 {
		if got := limiter.When(node); got != want {
			t.Fatalf("a pause of %s, want %s", got, want)
		}
		want = min(2*want, time.Minute)
	}
	if got := limiter.When(reconcile.Request{}); got != 50*time.Millisecond {
		t.Errorf("another object pauses for %s, and has not failed", got)
	}
}

// TestEveryControllerHasABackoff: the library's own lets an object wait for 17 minutes.
func TestEveryControllerHasABackoff(t *testing.T) {
	const builder, options, limiter = "ctrl.NewControllerManagedBy(", "MaxConcurrentReconciles:", "RateLimiter:"
	controllers := 0
	for _, dir := range []string{"../../../internal", "../../../kit"} {
		err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") ||
				strings.Contains(filepath.ToSlash(file), "/kittest/") {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			built, limited := strings.Count(string(text), builder), strings.Count(string(text), limiter)
			if set := max(built, strings.Count(string(text), options)); set > limited {
				t.Errorf("%s: %d controllers have options, and %d a RateLimiter: give each one", file, set, limited)
			}
			controllers += built
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if controllers < 10 {
		t.Errorf("%d controllers were found: they are looked for in the wrong way", controllers)
	}
}
