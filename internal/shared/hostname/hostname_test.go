// SPDX-License-Identifier: Apache-2.0

package hostname

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	long := strings.Repeat("n", 60)
	for pod, want := range map[string]string{
		"kmm-operator-5c9":   "kmm-operator-5c9",
		long + "abc":         long + "abc",
		long + "abcd":        long + "abc",
		long + "ab-cd":       long + "ab",
		long + "---cd":       long,
		long + "a.b-c":       long + "a.b",
		long + "ab.c":        long + "ab",
		long[:50] + "-a.b-x": long[:50] + "-a.b-x",
	} {
		if got := Of(pod); got != want {
			t.Errorf("%s: %s, want %s", pod, got, want)
		}
	}
}
