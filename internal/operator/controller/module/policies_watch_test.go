// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// policed is a cache with a policy for nodes of a pool, and a Module in each of two namespaces.
type policed struct{ client.Client }

func (policed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.ModulePolicyList:
		l.Items = []v1alpha1.ModulePolicy{{Spec: v1alpha1.ModulePolicySpec{
			Mode: v1alpha1.PolicyEnforce, NodeSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{"pool": "x"}}}}}
	case *v1beta1.ModuleList:
		for _, name := range []string{"a", "b"} {
			l.Items = append(l.Items, v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
		}
	default:
		return fmt.Errorf("an event lists %T", list)
	}
	return nil
}

// TestWhoIsLookedAtForAPolicy when the labels change that policies choose by.
func TestWhoIsLookedAtForAPolicy(t *testing.T) {
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	}
	namespace := func(labels map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: labels}}
	}
	x, y := map[string]string{"pool": "x"}, map[string]string{"pool": "x", "other": "y"}
	c := New(policed{}, nil, Options{})
	cases := map[string]struct {
		given func(*asked)
		then  []string
	}{
		"a node that a policy chooses now": {
			given: func(q *asked) { c.nodeEvent(t.Context(), q, node(nil), node(x)) }, then: []string{"a", "b"}},
		"a node that a policy no longer chooses": {
			given: func(q *asked) { c.nodeEvent(t.Context(), q, node(x), node(nil)) }, then: []string{"a", "b"}},
		"a node with another label": {given: func(q *asked) { c.nodeEvent(t.Context(), q, node(x), node(y)) }},
		"a namespace with another label": {
			given: func(q *asked) { c.namespaceEvent(t.Context(), q, namespace(x), namespace(y)) }, then: []string{"b"}},
		"a namespace with the same labels": {given: func(q *asked) { c.namespaceEvent(t.Context(), q, namespace(x), namespace(x)) }},
		"a namespace that comes":           {given: func(q *asked) { c.namespaceEvent(t.Context(), q, nil, namespace(x)) }},
		"a namespace that goes":            {given: func(q *asked) { c.namespaceEvent(t.Context(), q, namespace(x), nil) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := &asked{names: map[string]bool{}}
			tc.given(q)
			if diff := cmp.Diff(tc.then, slices.Sorted(maps.Keys(q.names))); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
		})
	}
}
