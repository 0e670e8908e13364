// SPDX-License-Identifier: Apache-2.0

package images

import (
	"strings"
	"testing"
)

// FuzzDepends: a package that a record of apt's asks for is named in it, by one word.
func FuzzDepends(f *testing.F) {
	f.Add("Package: kmod\nDepends: libc6 (>= 2.34), liblzma5 | x, libssl3\nPre-Depends: y\n")
	f.Add("Depends:\nDepends: ,|,\n")
	f.Fuzz(func(t *testing.T, record string) {
		for _, name := range depends(record) {
			if name == "" || strings.ContainsAny(name, " ,|\n") || !strings.Contains(record, name) {
				t.Errorf("package %q", name)
			}
		}
	})
}
