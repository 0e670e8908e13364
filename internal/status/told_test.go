// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/status"
)

// TestWhatIsToldIsRead: from the condition that is written, the nodes and words of each reason come back.
func TestWhatIsToldIsRead(t *testing.T) {
	const quota = `pods "drover-carrier-1" is forbidden: exceeded quota: none, requested: pods=1; ask your administrator`
	problem := func(reason, message string) *reasons.Problem {
		return &reasons.Problem{Reason: reason, Message: message}
	}
	told := func(message string, names ...string) (all []status.Saying) {
		for _, name := range names {
			all = append(all, status.Saying{Name: name, Message: message})
		}
		return all
	}
	cases := map[string]struct {
		given map[string]*reasons.Problem
		then  []status.Saying
		more  bool
	}{
		"the only reason": {given: map[string]*reasons.Problem{"a": problem(v1beta1.ReasonDeliveryRefused, quota)}, then: told(quota, "a")},
		"not the worst": {given: map[string]*reasons.Problem{
			"a": problem(v1beta1.ReasonImageNotFound, "no such image"), "b": problem(v1beta1.ReasonImageNotFound, ""),
			"c": problem(v1beta1.ReasonDeliveryRefused, quota),
		}, then: told(quota, "c")},
		"another one follows": {given: map[string]*reasons.Problem{
			"a": problem(v1beta1.ReasonDeliveryRefused, quota), "b": problem(v1beta1.ReasonDeliveryRefused, quota), "c": problem(v1beta1.ReasonPullFailed, "no way"),
		}, then: told(quota, "a", "b")},
		"without words":  {given: map[string]*reasons.Problem{"a": problem(v1beta1.ReasonDeliveryRefused, "")}, then: told("", "a")},
		"something else": {given: map[string]*reasons.Problem{"a": problem(v1beta1.ReasonPullFailed, "DeliveryRefused")}},
		"more than are named": {given: map[string]*reasons.Problem{
			"a": problem(v1beta1.ReasonDeliveryRefused, "no"), "b": problem(v1beta1.ReasonDeliveryRefused, "no"),
			"c": problem(v1beta1.ReasonDeliveryRefused, "no"), "d": problem(v1beta1.ReasonDeliveryRefused, "no"),
		}, then: told("no", "a", "b", "c"), more: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &status.Module{Loads: true}
			for _, name := range []string{"a", "b", "c", "d"} {
				if p := tc.given[name]; p != nil {
					m.Nodes = append(m.Nodes, status.Node{Name: name, Ready: true, Wanted: true, Delivery: p})
				}
			}
			c := meta.FindStatusCondition(status.Compute(m).Conditions, v1beta1.ConditionLoaded)
			if c == nil {
				t.Fatal("there is no condition")
			}
			got, more := status.Telling(c.Message, v1beta1.ReasonDeliveryRefused)
			if diff := cmp.Diff(fmt.Sprint(tc.then, tc.more), fmt.Sprint(got, more)); diff != "" {
				t.Errorf("in %q (-want +got):\n%s", c.Message, diff)
			}
		})
	}
}
