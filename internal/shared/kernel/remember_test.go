// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"testing"

	"github.com/drover-project/drover/internal/shared/kernel"
)

func TestRandomVersionsDoNotGrowMemory(t *testing.T) {
	known := map[string]int{}
	for i := range 100 * kernel.MaxRemembered {
		version := fmt.Sprintf("6.1.%d", i)
		kernel.Remember(known, version, i)
		if len(known) > kernel.MaxRemembered {
			t.Fatalf("%d versions are remembered", len(known))
		}
		if got, ok := known[version]; !ok || got != i {
			t.Fatalf("version %s is forgotten at once", version)
		}
	}
}
