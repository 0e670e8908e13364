// SPDX-License-Identifier: Apache-2.0

package source

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryReasonIsReported by some code: one that nothing finds any more is none of the set.
func TestEveryReasonIsReported(t *testing.T) {
	uses := map[string]bool{}
	word := regexp.MustCompile(`\b(?:v1beta1|manifest)\.(Reason\w+)`)
	for _, folder := range []string{"internal", "kit", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			// Those only say what reasons mean.
			tells := strings.Contains(path, "/internal/reasons/") || strings.Contains(path, "/internal/cli/")
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || tells {
				return err
			}
			content, err := os.ReadFile(path)
			for _, m := range word.FindAllStringSubmatch(string(content), -1) {
				uses[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	declared := regexp.MustCompile(`(?m)^\t(Reason\w+) = "`).FindAllStringSubmatch(readFile(t, "api/kmm/v1beta1/conditions.go"), -1)
	if len(declared) < 20 {
		t.Fatalf("found %d reasons only", len(declared))
	}
	for _, m := range declared {
		if !uses[m[1]] {
			t.Errorf("nothing reports %s", m[1])
		}
	}
}
