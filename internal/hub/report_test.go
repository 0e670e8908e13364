// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestWhatAClusterSaysIsBounded: it is shown in the hub's status and in terminals.
func TestWhatAClusterSaysIsBounded(t *testing.T) {
	for name, tc := range map[string]struct{ message, want string }{
		"one line":             {message: "node-7:\n\tno  symbol", want: "node-7: no symbol"},
		"no terminal's orders": {message: "\x1b]0;owned\x07\x1b[31mred\u202e", want: "?]0;owned??[31mred?"},
		"valid UTF-8":          {message: "a\xffb", want: "a?b"},
		"so long":              {message: strings.Repeat("é", maxMessage), want: strings.Repeat("é", maxMessage/2) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{}
			m.Status.ModuleLoader.AvailableNumber, m.Status.ModuleLoader.DesiredNumber = -1, maxNodes+1
			m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: "OfNobodysSet",
				Message: tc.message}}
			m.Annotations = map[string]string{RevisionAnnotation: strings.Repeat("x", maxRevision+1)}
			r := ReportOf(m)
			r.Refuse(tc.message)
			if r.Message != tc.want || r.Refused != tc.want {
				t.Errorf("%q, %q; want %q", r.Message, r.Refused, tc.want)
			}
			if r.Available != 0 || r.Desired != maxNodes || r.Reason != "" || r.Revision != "" {
				t.Errorf("believed is %+v", r)
			}
		})
	}
}
