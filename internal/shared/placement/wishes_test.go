// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
)

func TestWishes(t *testing.T) {
	const pause, skip, retry = v1beta1.PausedAnnotation, v1beta1.SkipChecksAnnotation, v1beta1.RetryAnnotation
	at := func(hour int) *metav1.Time { return &metav1.Time{Time: time.Date(2030, 1, 1, hour, 0, 0, 0, time.UTC)} }
	type annotations = map[string]string
	cases := map[string]struct {
		module, node annotations
		then         placement.Wishes
	}{
		"none":         {},
		"the Module's": {module: annotations{pause: "", skip: "yes"}, then: placement.Wishes{Paused: true, SkipChecks: true}},
		"the node's":   {node: annotations{pause: "no", skip: ""}, then: placement.Wishes{Paused: true, SkipChecks: true}},
		"the newer time, Module": {annotations{retry: "2030-01-01T02:00:00Z"}, annotations{retry: "2030-01-01T01:00:00Z"},
			placement.Wishes{Retry: at(2)}},
		"the newer time, node": {annotations{retry: "2030-01-01T02:00:00Z"}, annotations{retry: "2030-01-01T03:00:00Z"},
			placement.Wishes{Retry: at(3)}},
		"zones are compared": {annotations{retry: "2030-01-01T05:00:00+03:00"}, annotations{retry: "2030-01-01T01:00:00Z"},
			placement.Wishes{Retry: at(2)}},
		"fractions do not count":  {node: annotations{retry: "2030-01-01T03:00:00.7Z"}, then: placement.Wishes{Retry: at(3)}},
		"what is no time is none": {annotations{retry: "now"}, annotations{retry: "2030-01-01T03:00:00Z"}, placement.Wishes{Retry: at(3)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Annotations: tc.module}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: tc.node}}
			if diff := cmp.Diff(tc.then, placement.WishesFor(m, node)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if placement.SameWishes(m, node) != cmp.Equal(tc.module, tc.node) {
				t.Errorf("same wishes: %v", placement.SameWishes(m, node))
			}
		})
	}
}
