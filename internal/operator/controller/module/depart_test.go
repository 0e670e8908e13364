// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// says gives a node's Ready condition a status, since as long ago.
func (w *world) says(node *corev1.Node, status corev1.ConditionStatus, ago time.Duration) {
	w.Helper()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(w.clock.Now().Add(-ago)),
	}}
	w.must(w.admin.Status().Update(w.Context(), node))
}

// later is that much time gone by.
func (w *world) later(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// pauseNode sets or removes the annotation on a node.
func (w *world) pauseNode(node *corev1.Node, on bool) {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(node), node))
	patch := client.MergeFrom(node.DeepCopy())
	if delete(node.Annotations, v1beta1.PausedAnnotation); on {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1beta1.PausedAnnotation, "")
	}
	w.must(w.admin.Patch(w.Context(), node, patch))
}

// told is the only event so far, or nothing.
func (w *world) told() string {
	w.Helper()
	select {
	case e := <-w.events.Events:
		return e
	default:
		return ""
	}
}

// busy is an agent's answer that the kernel module is in use.
func busy(status v1beta1.NodeModulesConfigStatus, m *v1beta1.Module) v1beta1.NodeModulesConfigStatus {
	status.Attempts = append(status.Attempts, v1beta1.NodeModuleAttempt{
		Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse, Message: "used by process 7",
		LastTransitionTime: metav1.NewTime(time.Unix(2, 0)),
	})
	return status
}

// leaving is a Module on two nodes, deleted, with its orders to unload. Node a says that it is in
// use.
func leaving(w *world, change func(*v1beta1.Module)) (a, b *corev1.Node, m *v1beta1.Module) {
	w.Helper()
	a, b, m = w.node("a"), w.node("b"), w.module("nic")
	if change != nil {
		change(m)
		w.must(w.admin.Update(w.Context(), m))
	}
	w.pass(m)
	w.agent(a, loaded(w.ordered(a, m)))
	w.agent(b, loaded(w.ordered(b, m)))
	w.pass(m)
	w.reap()
	status := loaded(w.ordered(a, m))
	w.must(w.admin.Delete(w.Context(), m))
	w.pass(m)
	w.agent(a, busy(status, m))
	return a, b, m
}

// TestADeletedModuleWaitsNoLongerThanItsDeadline: one node is busy, the other does not answer.
func TestADeletedModuleWaitsNoLongerThanItsDeadline(t *testing.T) {
	cases := map[string]struct {
		given *metav1.Duration
		then  time.Duration
	}{
		"as long as is usual":  {nil, v1beta1.DefaultDeletionTimeout},
		"as long as it says":   {&metav1.Duration{Duration: time.Minute}, time.Minute},
		"not at all":           {&metav1.Duration{}, 0},
		"a deadline of an age": {&metav1.Duration{Duration: 100 * time.Hour}, 100 * time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b, m := leaving(w, func(m *v1beta1.Module) { m.Spec.DeletionTimeout = tc.given })
			const skew = 10 * time.Second // the Module's end is by the API server's clock
			if tc.then > skew {
				if after := w.pass(m).RequeueAfter; (after - tc.then).Abs() > skew {
					t.Errorf("the next pass is due after %v", after)
				}
				if !w.exists(m) {
					t.Fatal("it did not wait")
				}
				w.quiet(m)
			}
			w.later(tc.then + skew)
			w.pass(m)
			if w.exists(m) {
				t.Fatal("it waits still")
			}
			event := w.told()
			for _, words := range []string{"Warning Abandoned", "2 nodes", "InUse on " + a.Name + ": used by process 7", "AgentMissing on " +
				b.Name} {
				if !strings.Contains(event, words) {
					t.Errorf("the event %q does not say %q", event, words)
				}
			}
			w.finish(m, a, b)
		})
	}
}

// finish sees to it that orders that outlived their Module are carried out, one node after the
// other.
func (w *world) finish(m *v1beta1.Module, nodes ...*corev1.Node) {
	w.Helper()
	w.use(w.operator) // a restart forgets none of them
	for _, node := range nodes {
		if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent {
			w.Errorf("state %q: the order to unload stands", e.State)
		}
		w.quiet(m)
		w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
		w.pass(m)
		if w.config(node) != nil {
			w.Errorf("node %s has unloaded, and its entry is left", node.Name)
		}
	}
	w.quiet(m)
}

// TestADeletedModuleWaitsForNoDeadNode, however long its deadline.
func TestADeletedModuleWaitsForNoDeadNode(t *testing.T) {
	w := newWorld(t)
	a, b, m := leaving(w, nil)
	w.says(b, corev1.ConditionUnknown, 0)
	w.pass(m)
	if !w.exists(m) {
		t.Fatal("the busy node is not dead")
	}
	w.agent(a, gone(v1beta1.NodeModulesConfigStatus{}, m))
	w.pass(m)
	if w.exists(m) {
		t.Fatal("it waits for a dead node")
	}
	if event := w.told(); !strings.Contains(event, "1 node,") || !strings.Contains(event, "NodeNotReady on "+b.Name) ||
		strings.Contains(event, a.Name) {
		t.Errorf("the event is %q", event)
	}
	w.finish(m, b)
}

func TestWhenANodeIsDead(t *testing.T) {
	cases := map[string]struct {
		status corev1.ConditionStatus
		ago    time.Duration
		then   time.Duration // until it counts as dead
	}{
		"the cluster has lost sight of it":  {corev1.ConditionUnknown, time.Second, 0},
		"it says itself that it is not fit": {corev1.ConditionFalse, 20 * time.Second, 40 * time.Second},
		"it has said so for a minute":       {corev1.ConditionFalse, time.Minute, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b, m := leaving(w, nil)
			w.agent(a, gone(v1beta1.NodeModulesConfigStatus{}, m))
			w.says(b, tc.status, tc.ago)
			if after := w.pass(m).RequeueAfter; (after - tc.then).Abs() > time.Second {
				t.Errorf("the next pass is due after %v, not %v", after, tc.then)
			}
			if tc.then > 0 {
				w.later(tc.then + time.Second)
				w.pass(m)
			}
			if w.exists(m) {
				t.Error("the Module waits for it")
			}
		})
	}
}

// TestAPauseHoldsADeletedModule, while one of a node is only a reason to let go later.
func TestAPauseHoldsADeletedModule(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.annotate(m, v1beta1.PausedAnnotation, new(""))
	w.must(w.admin.Delete(t.Context(), m))
	w.later(100 * v1beta1.DefaultDeletionTimeout)
	w.pass(m)
	w.pass(m)
	if e := w.ordered(node, m); e.State != "" || !e.Paused || !w.exists(m) {
		t.Fatalf("entry %+v, Module there %t: a pause says that nothing is to be touched", e, w.exists(m))
	}

	w.pauseNode(node, true)
	w.annotate(m, v1beta1.PausedAnnotation, nil)
	w.pass(m)
	if w.exists(m) {
		t.Error("the deadline is over")
	}
	if event := w.told(); !strings.Contains(event, "Paused on "+node.Name) {
		t.Errorf("the event is %q", event)
	}
	w.quiet(m)
	w.pauseNode(node, false)
	w.pass(m)
	w.finish(m, node)
}

// TestANamesakeTakesOverWhatWasLeft: no unload any more for the node that comes back.
func TestANamesakeTakesOverWhatWasLeft(t *testing.T) {
	w := newWorld(t)
	a, b, m := leaving(w, nil)
	w.agent(a, gone(v1beta1.NodeModulesConfigStatus{}, m))
	w.says(b, corev1.ConditionUnknown, 0)
	w.pass(m)
	if w.exists(m) {
		t.Fatal("it waits for a dead node")
	}
	m = w.module("nic")
	w.pass(m)
	if e := w.ordered(b, m); e.State != v1beta1.NodeModulePresent {
		t.Errorf("state %q: the new Module wants the node", e.State)
	}
	if finalizers := w.config(b).Finalizers; len(finalizers) != 0 {
		w.pass(m)
		if finalizers = w.config(b).Finalizers; len(finalizers) != 0 {
			t.Errorf("finalizers %v", finalizers)
		}
	}
}

// TestNothingIsOrderedBeforeTheFinalizerStands: a Module that could go at once would leave what it
// ordered behind.
func TestNothingIsOrderedBeforeTheFinalizerStands(t *testing.T) {
	errRefused := errors.New("refused")
	cases := map[string]struct {
		given func(*world, *v1beta1.Module)
		fails bool
	}{
		"the finalizer is refused": {func(*world, *v1beta1.Module) {}, true},
		"deleted before the first pass, and the cache does not know": {func(w *world, m *v1beta1.Module) {
			w.must(w.admin.Delete(w.Context(), m))
		}, true},
		"deleted and made again": {func(w *world, m *v1beta1.Module) {
			w.must(w.admin.Delete(w.Context(), m))
			w.module(m.Name)
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node, m := w.node("a"), w.module("nic")
			stale := m.DeepCopy()
			w.use(interceptor.NewClient(w.operator, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if got, ok := o.(*v1beta1.Module); ok {
						stale.DeepCopyInto(got)
						return nil
					}
					return c.Get(ctx, key, o, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if _, ok := o.(*v1beta1.Module); ok && name == "the finalizer is refused" {
						return errRefused
					}
					return c.Patch(ctx, o, patch, opts...)
				},
			}))
			tc.given(w, m)
			result, err := w.control.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
			if (err != nil) != tc.fails || err == nil && result.RequeueAfter == 0 {
				t.Errorf("the pass ended with %v, the next after %v", err, result.RequeueAfter)
			}
			if w.config(node) != nil || len(w.carriers(m)) != 0 {
				t.Error("something was ordered")
			}
		})
	}
}

// TestNothingIsWrittenWhileTheGateIsClosed: not for a new Module, nor for one that leaves.
func TestNothingIsWrittenWhileTheGateIsClosed(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.must(w.admin.Delete(t.Context(), m))
	other := w.module("other")
	w.gate.Set(&reasons.Problem{Reason: v1beta1.ReasonPeerActive})
	w.quiet(m)
	w.quiet(other)
	if w.pass(m).RequeueAfter != gate.Pause {
		t.Error("nothing would look again")
	}
	w.gate.Set(nil)
	w.pass(m)
	w.pass(other)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || w.entry(node, other) == nil {
		t.Errorf("state %q: it goes on", e.State)
	}
}
