// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"github.com/drover-project/drover/internal/shared/words"
)

// mixture names the first image that brought different content to nodes that should have got the
// same: somebody moved its tag between deliveries. Empty: there is none. nodes are in order.
func mixture(nodes []Node) string {
	type brought struct {
		image   string
		digests []string
		names   map[string][]string
	}
	bySame := map[string]*brought{}
	var first *brought
	for i := range nodes {
		c := nodes[i].Content
		if c == nil {
			continue
		}
		b := bySame[c.Same]
		if b == nil {
			b = &brought{image: c.Image, names: map[string][]string{}}
			bySame[c.Same] = b
		}
		if b.names[c.Digest] == nil {
			b.digests = append(b.digests, c.Digest)
		}
		b.names[c.Digest] = append(b.names[c.Digest], nodes[i].Name)
		if len(b.digests) > 1 && (first == nil || b.image < first.image) {
			first = b
		}
	}
	if first == nil {
		return ""
	}
	parts := make([]string, 0, len(first.digests))
	for _, d := range first.digests {
		parts = append(parts, fmt.Sprintf("%s on %s", d, words.List(first.names[d], maxNames)))
	}
	return fmt.Sprintf("%s has different content on different nodes: %s", first.image, strings.Join(parts, ", "))
}
