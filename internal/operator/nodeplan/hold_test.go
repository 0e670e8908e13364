// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestWhatAHoldKeepsBack: the order and its carrier, but not the driver that pods need to end.
func TestWhatAHoldKeepsBack(t *testing.T) {
	order, first := &v1beta1.NodeModuleSpec{}, &v1beta1.NodeModuleSpec{State: v1beta1.NodeModulePresent}
	claimed := &Hold{By: Claims, Problem: &reasons.Problem{Reason: v1beta1.ReasonInUse}}
	blocked := &reasons.Problem{Reason: v1beta1.ReasonDrainBlocked}
	refused := &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused}
	request := &delivery.Request{}
	load, carry := Delivery{Order: order}, Delivery{Order: order, Create: request}
	leaves := Drain{Empty: true, Hold: &Hold{By: Claims}, First: first}
	restores := Drain{Empty: true, Hold: claimed, First: first, Restores: true}
	cases := map[string]struct {
		given  Plan
		then   *v1beta1.NodeModuleSpec
		create *delivery.Request
		failed *reasons.Problem
		tell   *reasons.Problem
	}{
		"nothing": {given: Plan{Delivery: carry}, then: order, create: request},
		"no slot": {given: Plan{Delivery: carry, Holds: []Hold{{By: Slots}}}},
		"the carrier is refused": {
			given: Plan{Delivery: carry, Holds: []Hold{{By: Admission, Problem: refused}}}, failed: refused,
		},
		"the node is not empty": {
			given: Plan{Delivery: load, Drain: Drain{Empty: true}, Holds: []Hold{{By: Pods, Problem: blocked}}}, tell: blocked,
		},
		"pods hold what the order unloads": {
			given: Plan{Delivery: load, Drain: Drain{Evict: []drain.Meant{{Pod: "a/b"}}}, Holds: []Hold{{By: Pods}}}, then: order,
		},
		"devices are claimed":     {given: Plan{Delivery: carry, Drain: Drain{Hold: claimed}}, tell: claimed.Problem},
		"the driver leaves first": {given: Plan{Delivery: load, Drain: leaves}, then: first},
		"from an empty node only": {given: Plan{Delivery: load, Drain: leaves, Holds: []Hold{{By: Pods}}}},
		"pods need the driver to end": {
			given: Plan{Delivery: load, Drain: restores, Holds: []Hold{{By: Pods, Problem: blocked}}}, then: first, tell: blocked,
		},
		"a claim that the cache did not show": {
			given: Plan{Delivery: load, Drain: Drain{Released: true}, Holds: []Hold{{By: Claims}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := emptyNode()
			tc.given.Node = &n
			s := tc.given.Step()
			if s.Write != tc.then || s.Create != tc.create || s.Failed != tc.failed || tc.given.Tell() != tc.tell {
				t.Errorf("writes %+v, creates %+v, failed %+v, tells %+v", s.Write, s.Create, s.Failed, tc.given.Tell())
			}
		})
	}
}

// TestANodePassesItsTurn when its pods have not left in time, and begins anew with the next one.
func TestANodePassesItsTurn(t *testing.T) {
	job := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job"}}
	pl := Plan{Drain: Drain{Empty: true, Options: v1beta1.DrainOptions{Timeout: &metav1.Duration{Duration: time.Hour}}}}
	v := pl.Drain.Vacancy([]corev1.Pod{job})
	hold, wait := pl.Vacated(&v, Wait{}, noon)
	if hold == nil || hold.By != Pods || !wait.Since.Equal(noon) || wait.over() {
		t.Errorf("at first: %+v, %+v", hold, wait)
	}
	hold, wait = pl.Vacated(&v, wait, noon.Add(time.Hour))
	if hold.Problem.Reason != v1beta1.ReasonDrainBlocked || !wait.over() || wait.Told != hold.Problem {
		t.Errorf("after an hour: %+v, %+v", hold.Problem, wait)
	}
	waits := Plan{Turn: Turn{Waits: true}}
	if hold, kept := waits.Vacated(nil, wait, noon); hold != nil || kept != wait {
		t.Errorf("while others have their turn: %+v, %+v", hold, kept)
	}
	if _, wait = pl.Vacated(&v, wait, noon.Add(2*time.Hour)); wait.over() || wait.Passed.IsZero() {
		t.Errorf("with its next turn: %+v", wait)
	}
	if hold, wait = pl.Vacated(nil, wait, noon); hold != nil || wait != (Wait{}) {
		t.Errorf("when it is empty: %+v, %+v", hold, wait)
	}
}
