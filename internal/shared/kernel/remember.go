// SPDX-License-Identifier: Apache-2.0

package kernel

// MaxRemembered is how many kernels are remembered per Module. A node that reports another version
// with each heartbeat must not make the operator grow.
const MaxRemembered = 256

// Remember keeps what was found for a kernel, and empties a full map first.
func Remember[K comparable, V any](known map[K]V, key K, value V) {
	if len(known) >= MaxRemembered {
		clear(known)
	}
	known[key] = value
}
