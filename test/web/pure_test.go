// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestExpand(t *testing.T) {
	values := map[string]string{"PORT": "8080", "EMPTY": ""}
	for given, want := range map[string]string{
		"plain":           "plain",
		"$(PORT)":         "8080",
		"[$(EMPTY)]":      "[]",
		"$(UNKNOWN)":      "$(UNKNOWN)",
		"$$(PORT)":        "$(PORT)",
		"$$$(PORT)":       "$8080",
		"$PORT ${PORT} $": "$PORT ${PORT} $",
		"$$":              "$",
		"$(PORT":          "$(PORT",
		"$()":             "$()",
		"50 $ü":           "50 $ü",
	} {
		if got := expand(given, values); got != want {
			t.Errorf("expand(%q) = %q, want %q", given, got, want)
		}
	}
}
