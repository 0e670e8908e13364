// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// writesOf counts what passes write.
func (w *world) writesOf(m *v1beta1.Module) int {
	w.Helper()
	mark := w.env.Mark(w)
	w.pass(m)
	n := len(w.env.Writes(w, mark))
	w.quiet(m)
	return n
}

// annotate changes a Module's annotations, nil takes one away, and its spec.
func (w *world) annotate(m *v1beta1.Module, key string, value *string, change ...func(*v1beta1.Module)) {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(m), m))
	if value == nil {
		delete(m.Annotations, key)
	} else {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, *value)
	}
	for _, c := range change {
		c(m)
	}
	w.must(w.admin.Update(w.Context(), m))
}

func TestPausedIsWrittenOnceAndNothingElseIs(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.annotate(m, v1beta1.PausedAnnotation, new(""), func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"a=1"}
	})
	if n := w.writesOf(m); n != 1 {
		t.Errorf("the pause took %d writes", n)
	}
	if e := w.ordered(node, m); !e.Paused || len(e.Config.Modprobe.Parameters) != 0 {
		t.Errorf("entry %+v: it shall be paused and else as it was", e)
	}
	w.node("b") // nothing is ordered there
	w.quiet(m)

	w.annotate(m, v1beta1.PausedAnnotation, nil)
	w.pass(m)
	if e := w.ordered(node, m); e.Paused || len(e.Config.Modprobe.Parameters) != 1 {
		t.Errorf("entry %+v: the change is made once the pause ends", e)
	}
}

func TestPausedNodeIsToldByItsOwnEntry(t *testing.T) {
	w := newWorld(t)
	paused, other, m := w.node("a"), w.node("b"), w.module("nic")
	w.load(paused, m)
	w.agent(other, loaded(w.ordered(other, m)))
	w.pass(m)
	w.reap()
	w.quiet(m)
	patch := client.MergeFrom(paused.DeepCopy())
	metav1.SetMetaDataAnnotation(&paused.ObjectMeta, v1beta1.PausedAnnotation, "")
	w.must(w.admin.Patch(t.Context(), paused, patch))
	if n := w.writesOf(m); n != 1 || !w.ordered(paused, m).Paused || w.ordered(other, m).Paused {
		t.Errorf("%d writes, paused %v and %v", n, w.ordered(paused, m).Paused, w.ordered(other, m).Paused)
	}
}

func TestWhatAModuleAsksForIsInTheEntry(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	plain := w.ordered(node, m)
	if plain.Paused || plain.SkipChecks || plain.Retry != nil || plain.UnloadPolicy != "" || plain.BlacklistInTree || plain.ReadyWhen != nil {
		t.Errorf("entry %+v: nothing of that was asked for", plain)
	}
	asked := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	w.annotate(m, v1beta1.RetryAnnotation, new(asked.In(time.FixedZone("", 3600)).Format(time.RFC3339)), func(m *v1beta1.Module) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.SkipChecksAnnotation, "")
		m.Spec.ModuleLoader.Container.UnloadPolicy = v1beta1.UnloadOnReboot
		m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"nic"}
		m.Spec.ModuleLoader.Container.BlacklistInTree = true
		m.Spec.ModuleLoader.Container.ReadyWhen = []v1beta1.ReadyCheck{{DeviceNode: "/dev/nic0"}, {Command: []string{"/probe"}}}
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	})
	if n := w.writesOf(m); n != 1 {
		t.Errorf("%d writes", n)
	}
	e := w.ordered(node, m)
	if !e.SkipChecks || e.UnloadPolicy != v1beta1.UnloadOnReboot || !e.BlacklistInTree || e.Retry == nil || !e.Retry.Time.Equal(asked) {
		t.Errorf("entry %+v", e)
	}
	if len(e.ReadyWhen) != 1 || e.ReadyWhen[0].DeviceNode != "/dev/nic0" {
		t.Errorf("checks %+v: the command is for the plugin's pod, the rest for the node", e.ReadyWhen)
	}
	w.annotate(m, v1beta1.RetryAnnotation, nil, func(m *v1beta1.Module) { m.Annotations = nil })
	w.pass(m)
	if e := w.ordered(node, m); e.SkipChecks || e.Retry != nil {
		t.Errorf("entry %+v: nothing of that is asked for any more", e)
	}
}

// TestLabelsThatFlap: a minute without the selector's labels, on every node, unloads nothing and
// writes nothing.
func TestLabelsThatFlap(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.relabel(node, "other")
	w.quiet(m)
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.quiet(m)
	w.relabel(node, w.namespace)
	w.quiet(m)

	// The time of before does not count, and a restart begins to count anew.
	w.relabel(node, "other")
	w.pass(m)
	w.clock.SetTime(w.clock.Now().Add(rollout.DeselectGracePeriod - time.Second))
	w.use(w.operator)
	if after := w.pass(m).RequeueAfter; after != rollout.DeselectGracePeriod {
		t.Errorf("the next pass is due after %v", after)
	}
	w.quiet(m)
	w.clock.SetTime(w.clock.Now().Add(rollout.DeselectGracePeriod))
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || e.Reason != nodeplan.ReasonDeselected {
		t.Errorf("entry %+v: the node has not been selected for long enough", e)
	}
}

// TestALoadThatTakesANodeDownGoesToNoFurtherNode, until another delivery is asked for, or somebody
// asks to go on. The node's clock does not matter.
func TestALoadThatTakesANodeDownGoesToNoFurtherNode(t *testing.T) {
	for name, skew := range map[string]time.Duration{"a right clock": 0, "an hour behind": -time.Hour, "an hour ahead": time.Hour,
		"decades ahead": 69 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) { goesToNoFurtherNode(t, skew) })
	}
}

func goesToNoFurtherNode(t *testing.T, skew time.Duration) {
	w := newWorld(t)
	first, m := w.node("a"), w.module("nic")
	w.pass(m)
	order := w.ordered(first, m)
	asked := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	began := metav1.NewTime(asked.Add(skew))
	struck := func(retry *metav1.Time) {
		w.agent(first, v1beta1.NodeModulesConfigStatus{
			Artifacts: []v1beta1.NodeArtifact{{ID: order.Delivery.ID, Digest: "d"}},
			Attempts: []v1beta1.NodeModuleAttempt{{
				Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonQuarantined, Strikes: 1,
				Strike:             &v1beta1.Strike{Delivery: order.Delivery.ID, Build: "nic (build 1)", Began: began, Retry: retry},
				LastTransitionTime: began,
			}},
		})
	}
	struck(nil)
	second := w.node("b")
	w.pass(m)
	w.reap()
	w.quiet(m)
	if e := w.entry(second, m); e != nil || len(w.carriers(m)) != 0 {
		t.Errorf("entry %+v, %d carriers", e, len(w.carriers(m)))
	}

	w.annotate(m, v1beta1.RetryAnnotation, new(asked.Format(time.RFC3339)))
	w.pass(m)
	if e := w.ordered(second, m); e.Delivery.ID != order.Delivery.ID {
		t.Errorf("entry %+v: somebody asked to go on", e)
	}

	struck(new(metav1.NewTime(asked)))
	third := w.node("c")
	w.pass(m)
	if e := w.entry(third, m); e != nil {
		t.Errorf("entry %+v: the node went down again after that", e)
	}
}
