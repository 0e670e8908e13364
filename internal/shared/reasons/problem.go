// SPDX-License-Identifier: Apache-2.0

package reasons

// Problem is why something is not as it should be.
type Problem struct {
	// Reason of the closed set.
	Reason string
	// Message for people: the words of whoever refused, where somebody did.
	Message string
}
