// SPDX-License-Identifier: Apache-2.0

//go:build nokwok

package component

import (
	"fmt"
	"os"
)

// runKwok: no release of kwok compiles with every release of Kubernetes, and older ones play less.
// The control planes of older releases are played on by the kwok of the newest (flag
// --kwok-binary).
func runKwok() int {
	fmt.Fprintln(os.Stderr, "kwok: not in this binary, which is of an older release of Kubernetes")
	return 1
}
