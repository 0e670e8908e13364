// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/shared/orderhash"
)

func TestNeedsWrite(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	later := metav1.NewTime(at.Add(time.Minute))
	type status = v1beta1.NodeModulesConfigStatus
	live := func(since metav1.Time) status {
		return status{Modules: []v1beta1.NodeModuleStatus{{
			ModuleItem: v1beta1.ModuleItem{Namespace: "ns", Name: "m"}, BootID: "b", LastTransitionTime: since,
			Observed: &v1beta1.ObservedModule{BuildID: "1"},
		}}}
	}
	tried := func(state v1beta1.AttemptState, reason, message string, n int32) status {
		return status{Attempts: []v1beta1.NodeModuleAttempt{{
			Namespace: "ns", Name: "m", State: state, Reason: reason, Message: message, Attempt: n, NextRetry: &later, LastTransitionTime: at,
		}}}
	}
	of := func(order string, s status) status {
		s.Attempts[0].Order = order
		return s
	}
	holds := func(ids ...string) status {
		var s status
		for _, id := range ids {
			s.Artifacts = append(s.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: "digest-" + id})
		}
		return s
	}
	held := map[string]string{"a": "digest-a", "b": "digest-b"}
	cases := map[string]struct {
		last, want status
		ordered    bool
		then       bool
	}{
		"nothing to say":          {status{}, status{}, true, false},
		"live now":                {status{}, live(at), true, true},
		"live still":              {live(at), live(at), true, false},
		"loaded again in between": {live(at), live(later), true, true},
		"gone":                    {live(at), status{}, true, true},
		"failed once more":        {tried("Failed", "NoSuchDevice", "x", 1), tried("Failed", "NoSuchDevice", "x", 2), true, false},
		"other kernel lines": {tried("Failed", "LoadFailed", "x\nline", 1), tried("Failed", "LoadFailed", "x\nother", 1), true,
			false},
		"another headline":                    {tried("InUse", "InUse", "used by a", 1), tried("InUse", "InUse", "used by b", 1), true, true},
		"another order fails the same way":    {tried("Failed", "Timeout", "x", 1), of("2", tried("Failed", "Timeout", "x", 1)), true, true},
		"another reason":                      {tried("Failed", "NoSuchDevice", "x", 1), tried("Failed", "Timeout", "x", 1), true, true},
		"acknowledgement of an order":         {status{}, tried("Absent", "", "", 0), true, true},
		"acknowledged order is gone":          {tried("Absent", "", "", 0), status{}, false, false},
		"acknowledged order wants it again":   {tried("Absent", "", "", 0), status{}, true, true},
		"artifacts in another order":          {holds("b", "a"), holds("a", "b"), true, false},
		"artifact held but needed no more":    {holds("a", "b"), holds("a"), true, false},
		"artifact lost":                       {holds("a", "c"), holds("a"), true, true},
		"artifact with another content":       {status{Artifacts: []v1beta1.NodeArtifact{{ID: "a", Digest: "other"}}}, holds("a"), true, true},
		"tidying goes along with what is new": {holds("a", "b"), live(at), true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := NeedsWrite(&tc.last, &tc.want, func(orders.Key) bool { return tc.ordered }, held, at.Time); got != tc.then {
				t.Errorf("needsWrite = %v, want %v", got, tc.then)
			}
		})
	}
}

func TestAttemptKeepsItsTransitionTime(t *testing.T) {
	then := metav1.NewTime(time.Unix(1_800_000_000, 0))
	last := &v1beta1.NodeModulesConfigStatus{Attempts: []v1beta1.NodeModuleAttempt{{
		Namespace: "ns", Name: "m", State: v1beta1.AttemptFailed, Reason: "Timeout", LastTransitionTime: then,
	}}}
	now := then.Add(time.Hour)
	k := orders.Key{Namespace: "ns", Name: "m"}
	if a := attemptOf(k, nil, orders.Attempt{State: v1beta1.AttemptFailed, Reason: "Timeout"}, last, now); !a.LastTransitionTime.Equal(&then) {
		t.Error("the same failure got a new transition time")
	}
	other := orders.Attempt{State: v1beta1.AttemptFailed, Reason: "LoadFailed"}
	if a := attemptOf(k, nil, other, last, now); a.LastTransitionTime.Equal(&then) {
		t.Error("another failure kept the transition time")
	}
}

func TestAnAttemptNamesItsOrder(t *testing.T) {
	order := &v1beta1.NodeModuleSpec{Delivery: &v1beta1.Delivery{ID: "d1"}}
	a := attemptOf(orders.Key{}, order, orders.Attempt{State: v1beta1.AttemptFailed}, &v1beta1.NodeModulesConfigStatus{}, time.Time{})
	if a.Order == "" || a.Order != orderhash.WithPolicy(order) {
		t.Errorf("it names %q", a.Order)
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	long := attemptOf(orders.Key{}, nil, orders.Attempt{Message: strings.Repeat("ä", 3000)}, &v1beta1.NodeModulesConfigStatus{}, time.Time{})
	if len(long.Message) > maxMessage+len("…") || !strings.HasSuffix(long.Message, "ä…") {
		t.Errorf("cut to %d bytes: …%s", len(long.Message), long.Message[len(long.Message)-8:])
	}
}
