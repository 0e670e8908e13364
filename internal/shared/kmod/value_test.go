// SPDX-License-Identifier: Apache-2.0

package kmod

import "testing"

func TestSameValue(t *testing.T) {
	for _, tc := range []struct {
		kind, want, shown string
		same              bool
	}{
		{"int", "8", "8", true},
		{"int", "8", "4", false},
		{"int", "0x10", "16", true},
		{"int", "010", "8", true},
		{"int", "-1", "-1", true},
		{"uint", "4294967295", "4294967295", true},
		{"hexint", "16", "0x10", true},
		{"int", "many", "4", true}, // the kernel would refuse it: nothing is said about it here
		{"bool", "1", "Y", true},
		{"bool", "on", "Y", true},
		{"bool", "", "Y", true},
		{"bool", "0", "Y", false},
		{"bool", "false", "N", true},
		{"bint", "Y", "1", true},
		{"charp", "eth0", "eth0", true},
		{"charp", `"two words"`, "two words", true},
		{"charp", "eth0", "(null)", false},
		{"array of int", "1,0x2", "1,2", true},
		{"array of int", "1,2", "1,2,0", false},
		{"array of charp", "a,b", "a,c", false},
		{"", "1", "enabled", true},
		{"mine", "1", "enabled", true},
	} {
		if got := SameValue(tc.kind, tc.want, tc.shown); got != tc.same {
			t.Errorf("%s set to %q shows %q: %v", tc.kind, tc.want, tc.shown, got)
		}
	}
}
