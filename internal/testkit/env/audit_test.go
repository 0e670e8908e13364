// SPDX-License-Identifier: Apache-2.0

package env

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLook: a change can be seen before the request that made it is answered. Writes that are
// counted then are too few.
func TestLook(t *testing.T) {
	received := `{"auditID":"a","stage":"RequestReceived","verb":"update","requestURI":"/x","userAgent":"drover-operator/1"}`
	answered := strings.Replace(received, "RequestReceived", "ResponseComplete", 1)
	barrier := `{"auditID":"b","stage":"ResponseComplete","verb":"get","requestURI":"/version?barrier=1","userAgent":"test-admin"}`
	early := strings.Replace(barrier, "ResponseComplete", "RequestReceived", 1)
	tests := map[string]struct {
		given    []string
		passed   bool
		underWay []string
	}{
		"nothing":                    {nil, false, nil},
		"answered":                   {[]string{received, answered, barrier}, true, nil},
		"not answered":               {[]string{received, barrier}, true, []string{"update /x"}},
		"answered after the barrier": {[]string{received, barrier, answered}, true, nil},
		"the barrier is not":         {[]string{received, early}, false, []string{"update /x"}},
		"panicked":                   {[]string{received, strings.Replace(answered, "ResponseComplete", "Panic", 1), barrier}, true, nil},
		"a watch never is":           {[]string{strings.Replace(received, "update", "watch", 1), barrier}, true, nil},
		"another client's":           {[]string{strings.Replace(received, "drover-operator", "kubectl", 1), barrier}, true, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log := newAuditLog(filepath.Join(t.TempDir(), "audit.log"))
			text := ""
			// Line by line: what was read before is remembered.
			for _, line := range append([]string{""}, test.given...) {
				if line != "" {
					text += line + "\n"
				}
				if err := os.WriteFile(log.path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, _, _, err := log.look(""); err != nil {
					t.Fatal(err)
				}
			}
			passed, underWay, end, err := log.look("/version?barrier=1")
			if err != nil || passed != test.passed || int(end) != len(text) {
				t.Errorf("passed is %t, the end %d (%v), want %t and %d", passed, end, err, test.passed, len(text))
			}
			if diff := cmp.Diff(test.underWay, slices.Collect(maps.Values(underWay))); diff != "" {
				t.Errorf("under way (-want +got):\n%s", diff)
			}
		})
	}
}
