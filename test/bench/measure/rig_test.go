// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"testing"
)

// TestMemoryIsBoundedBySize, as the bounds are stated.
func TestMemoryIsBoundedBySize(t *testing.T) {
	for of, want := range map[[2]int]float64{{1, 1}: 120, {500, 1}: 120, {5000, 1}: 200, {5000, 20}: 400, {2000, 5}: 157} {
		if got := MaxOperatorMiB(of[0], of[1]); math.Round(got) != want {
			t.Errorf("%d nodes, %d Modules: %.1f MiB, want %.0f", of[0], of[1], got, want)
		}
	}
}
