// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/status"
)

// TestMessagesKeepWhatMatters: who failed at what, why, and what the kernel said of it in the end.
func TestMessagesKeepWhatMatters(t *testing.T) {
	long := "failed to pull and unpack image " + strings.Repeat("ä", 1000)
	cases := map[string]struct {
		reason, given string
		then          []string
		not           string
	}{
		"both ends of a long one": {
			reason: v1beta1.ReasonLoadFailed, given: long + ": not found", then: []string{"failed to pull and unpack image ä", "…", "ä: not found"},
		},
		"the kernel's last line": {
			reason: v1beta1.ReasonLoadFailed, given: "The kernel refused nic.\nnic: probing\nnic: card does not answer",
			then: []string{"The kernel refused nic. (kernel: nic: card does not answer)"},
			not:  "probing",
		},
		"a long line of the kernel": {
			reason: v1beta1.ReasonLoadFailed, given: "No.\n" + long + " (err -2)", then: []string{"No. (kernel: failed to pull", "ä (err -2))"},
		},
		"what is no line of the kernel": {reason: v1beta1.ReasonNotUsable, given: "Not ready.\nstate holds down", then: []string{"Not ready."},
			not: "holds"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			module := status.Module{Loads: true, Nodes: nodes(1,
				func(_ int, n *status.Node) { n.Attempt = attempt(v1beta1.AttemptFailed, tc.reason, tc.given) })}
			message := meta.FindStatusCondition(status.Compute(&module).Conditions, v1beta1.ConditionLoaded).Message
			for _, words := range tc.then {
				if !strings.Contains(message, words) {
					t.Errorf("no %q in %q", words, message)
				}
			}
			if len(message) > 600 || slices.Contains([]rune(message), '\uFFFD') || tc.not != "" && strings.Contains(message, tc.not) {
				t.Errorf("%d bytes: %q", len(message), message)
			}
		})
	}
}
