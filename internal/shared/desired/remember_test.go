// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"fmt"
	"testing"
)

func TestRandomVersionsDoNotGrowMemory(t *testing.T) {
	known := map[string]int{}
	for i := range 100 * maxRemembered {
		version := fmt.Sprintf("6.1.%d", i)
		remember(known, version, i)
		if len(known) > maxRemembered {
			t.Fatalf("%d versions are remembered", len(known))
		}
		if got, ok := known[version]; !ok || got != i {
			t.Fatalf("version %s is forgotten at once", version)
		}
	}
}
