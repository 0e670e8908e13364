// SPDX-License-Identifier: Apache-2.0

package result

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// SourceDigest is the digest of a source's files by name.
func SourceDigest(files map[string][]byte) string {
	sum := sha256.New()
	part := func(text []byte) { _, _ = fmt.Fprintf(sum, "%d:%s", len(text), text) } // never fails
	for _, name := range slices.Sorted(maps.Keys(files)) {
		part([]byte(name))
		part(files[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
