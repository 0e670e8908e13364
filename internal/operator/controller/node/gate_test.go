// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestOnlyConditionsAreWrittenWhileTheGateIsClosed: they say why, and what is.
func TestOnlyConditionsAreWrittenWhileTheGateIsClosed(t *testing.T) {
	s := newScene(t, 1)
	g := &gate.Gate{}
	g.Set(&reasons.Problem{Reason: v1beta1.ReasonPeerActive, Message: "KMM is at work"})
	startWith(t, s.Env, time.Now, g)
	name := s.nodes[0]
	s.order(t, name)
	s.report(t, name, s.live("boot-1"))
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionTrue, v1beta1.ReasonLoaded)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPeerActive)
	n := &corev1.Node{}
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	if _, ok := n.Labels[v1beta1.ReadyLabel(s.namespace, "nic")]; ok {
		t.Error("a label was written")
	}

	g.Set(nil) // which is told at once
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	s.awaitLabel(t, name, v1beta1.ReadyLabel(s.namespace, "nic"), true)
}
