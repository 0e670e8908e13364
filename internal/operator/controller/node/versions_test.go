// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestVersionLabelSteps: from every state, one step, until nothing is left to do.
func TestVersionLabelSteps(t *testing.T) {
	const user, worker, schedule = "kmm.node.kubernetes.io/version-module.team.nic",
		"beta.kmm.node.kubernetes.io/version-worker-pod.team.nic", "beta.kmm.node.kubernetes.io/version-schedule-pod.team.nic"
	ready := v1beta1.ReadyLabel("team", "nic")
	cases := map[string]struct {
		given map[string]string
		busy  bool
		then  map[string]string
	}{
		"nothing asked, nothing done":          {given: map[string]string{"x": "y"}},
		"asked: first the order":               {given: map[string]string{user: "1"}, then: map[string]string{worker: "1"}},
		"but not while something else is live": {given: map[string]string{user: "1", ready: ""}},
		"then the plugin": {given: map[string]string{user: "1", worker: "1", ready: ""},
			then: map[string]string{worker: "1", schedule: "1"}},
		"then it is done": {given: map[string]string{user: "1", worker: "1", schedule: "1", ready: ""},
			then: map[string]string{worker: "1", schedule: "1"}},
		"another version: first the plugin goes": {given: map[string]string{user: "2", worker: "1", schedule: "1", ready: ""}, busy: true,
			then: map[string]string{worker: "1"}},
		"then nothing while its pod is there": {given: map[string]string{user: "2", worker: "1", ready: ""}, busy: true,
			then: map[string]string{worker: "1"}},
		"then the order goes":           {given: map[string]string{user: "2", worker: "1", ready: ""}},
		"then nothing while it is live": {given: map[string]string{user: "2", ready: ""}},
		"then the new order":            {given: map[string]string{user: "2"}, then: map[string]string{worker: "2"}},
		"a plugin of another version goes": {given: map[string]string{user: "2", worker: "2", schedule: "1"},
			then: map[string]string{worker: "2"}},
		"a plugin without an order goes": {given: map[string]string{user: "2", schedule: "2"}},
		"no longer asked: first the plugin goes": {given: map[string]string{worker: "1", schedule: "1", ready: ""},
			then: map[string]string{worker: "1"}},
		"then the order, without pods": {given: map[string]string{worker: "1", ready: ""}},
		"but not with them":            {given: map[string]string{worker: "1", ready: ""}, busy: true, then: map[string]string{worker: "1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			busy := func(m types.NamespacedName) bool {
				return tc.busy && m == types.NamespacedName{Namespace: "team", Name: "nic"}
			}
			if tc.then == nil {
				tc.then = map[string]string{}
			}
			if diff := cmp.Diff(tc.then, versionLabels(maps.Clone(tc.given), busy)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}
