// SPDX-License-Identifier: Apache-2.0

package agentpod_test

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/agentpod"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const namespace = "drover-system"

// TestAPodThatCannotEnd is removed where a kernel call hangs, and only there.
func TestAPodThatCannotEnd(t *testing.T) {
	cases := map[string]struct {
		label  string // of the pod; empty: the agent's
		alive  bool   // it is not being deleted
		unwell bool   // the node is not Ready
		reason string // of what the node reports; empty: that a call hangs
		after  time.Duration
		closed bool
		gone   bool
	}{
		"after its grace period and a while": {after: agentpod.Patience, gone: true},
		"a moment before that":               {after: agentpod.Patience - time.Second},
		"one that is not being deleted":      {alive: true, after: time.Hour},
		"another pod of the node":            {label: "other", after: time.Hour},
		"where no call hangs":                {reason: v1beta1.ReasonInUse, after: time.Hour},
		"on a node that does not answer":     {unwell: true, after: time.Hour},
		"while another operator is at work":  {closed: true, after: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := env.Get(t)
			admin := e.Admin(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "hung-"}}
			create(t, admin, node)
			ready := corev1.ConditionTrue
			if tc.unwell {
				ready = corev1.ConditionUnknown
			}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
			if err := admin.Status().Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
			create(t, admin, config)
			reason := v1beta1.ReasonTimeout
			if tc.reason != "" {
				reason = tc.reason
			}
			config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: v1beta1.AttemptFailed, Reason: reason,
				Message: "of a test", LastTransitionTime: metav1.Now()}}
			if err := admin.Status().Update(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			pod := agent(node.Name, tc.label)
			create(t, admin, pod)
			begin := time.Now()
			if !tc.alive {
				if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(90)); err != nil {
					t.Fatal(err)
				}
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
					t.Fatal(err)
				}
				begin = pod.DeletionTimestamp.Time
			}
			closed := &gate.Gate{}
			if tc.closed {
				closed.Set(&reasons.Problem{Reason: v1beta1.ReasonPeerActive})
			}
			operator := e.Client(t, e.Config(t, env.Operator))
			c := agentpod.New(operator, operator, namespace, closed, clocktesting.NewFakePassiveClock(begin.Add(tc.after)))
			if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node.Name}}); err != nil {
				t.Fatal(err)
			}
			err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
			if gone := apierrors.IsNotFound(err); gone != tc.gone || !gone && err != nil {
				t.Errorf("gone: %v, %v", gone, err)
			}
		})
	}
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(t.Context(), object, client.GracePeriodSeconds(0)) })
}

// agent is a pod as the agent's DaemonSet makes one.
func agent(node, label string) *corev1.Pod {
	if label == "" {
		label = agentpod.AgentLabel
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: "drover-agent-", Labels: map[string]string{"app.kubernetes.io/name": label},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "registry.invalid/agent:1"}}},
	}
}
