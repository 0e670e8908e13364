// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReasonsAreDocumented compares the closed set of reasons with docs/reference/reasons.md.
func TestReasonsAreDocumented(t *testing.T) {
	declared := matches(t, "conditions.go", `(?m)^\tReason\w+\s+= "(\w+)"`)
	documented := matches(t, "../../../docs/reference/reasons.md", "(?m)^\\| `(\\w+)` \\|")
	if diff := cmp.Diff(declared, documented); diff != "" {
		t.Errorf("reasons in conditions.go (-) and in docs/reference/reasons.md (+) differ:\n%s", diff)
	}
}

func matches(t *testing.T, file, pattern string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return found
}
