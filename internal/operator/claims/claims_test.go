// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/shared/drain"
)

func claim(name, driver, node string, pods int) resourcev1.ResourceClaim {
	c := resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Driver: driver, Pool: "p", Device: "d"}}
	if node != "" {
		c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}
	}
	c.Status.ReservedFor = make([]resourcev1.ResourceClaimConsumerReference, pods)
	return c
}

func TestHolds(t *testing.T) {
	cases := map[string]struct {
		given resourcev1.ResourceClaim
		then  bool
	}{
		"a pod has it":      {claim("a", "nic.example.com", "n", 1), true},
		"nobody has it":     {claim("a", "nic.example.com", "n", 0), false},
		"of another driver": {claim("a", "gpu.example.com", "n", 1), false},
		"not allocated":     {resourcev1.ResourceClaim{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := claims.Holds(&tc.given, "old.example.com", "nic.example.com"); got != tc.then {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestOn(t *testing.T) {
	given := []resourcev1.ResourceClaim{
		claim("there", "nic.example.com", "n", 1), claim("elsewhere", "nic.example.com", "m", 1), claim("anywhere", "nic.example.com", "", 1),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if diff := cmp.Diff([]string{"team/anywhere", "team/there"}, claims.On(node, given)); diff != "" {
		t.Errorf("claims on the node (-want +got):\n%s", diff)
	}
}

// TestPods: a claim's pods are those of its namespace that it is reserved for, each with its UID.
func TestPods(t *testing.T) {
	given := []resourcev1.ResourceClaim{claim("there", "nic.example.com", "n", 0), claim("elsewhere", "nic.example.com", "m", 0)}
	for i := range given {
		given[i].Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{
			{Resource: "pods", Name: "p", UID: "u1"}, {APIGroup: "example.com", Resource: "pods", Name: "q", UID: "u2"}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if diff := cmp.Diff([]drain.Meant{{Pod: "team/p", UID: "u1"}}, claims.Pods(node, given)); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
