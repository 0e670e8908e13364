// SPDX-License-Identifier: Apache-2.0

package module

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
	"github.com/drover-project/drover/internal/strikes"
)

const (
	running = "6.1.0-37-amd64"
	ours    = types.UID("carrier-1")
)

// noon is the time of all plans.
var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func given() *v1beta1.Module {
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic", UID: "m", Generation: 1, Finalizers: []string{v1beta1.ModuleFinalizer}},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"nic": "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{{Literal: running, ContainerImage: "r/nic:1"}},
			}},
		},
	}
}

// wish is the order that given makes for the running kernel.
func wish(t *testing.T) *v1beta1.NodeModuleSpec {
	t.Helper()
	a := desired.New(given()).On(running, "amd64")
	if a.State == nil {
		t.Fatalf("answer %+v", a)
	}
	return entryOf(given(), a.State)
}

// scene is one node and what is known about it.
type scene struct {
	module *v1beta1.Module
	view   view
	// memory of the process
	trusted, resting bool
	unsealed         bool
	// waited is how long the process has seen the carriers as they are.
	waited time.Duration
	// defined is since when there are Modules.
	defined time.Time
	// unwanted is since when the process knows the node to be unwanted.
	unwanted time.Time
	verdict  strikes.Verdict
	// allocation is what is known of claimed devices.
	allocation allocation
}

// outcome is what a plan does with the node, in words.
type outcome struct {
	Creates, Discards, Writes, Removes, Failed, Working bool
	Remaining                                           int
	State                                               v1beta1.NodeModuleState
	Reason                                              string
	Carrier                                             types.UID
	Blocked                                             bool
	// Paused and Asked (for a retry) are what is written beside.
	Paused, Asked, Excused bool
	Patience               time.Duration
	// Told is what is said of the node.
	Told string
}

func emptyView() view {
	return view{
		name: "n",
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n1", Labels: map[string]string{"nic": "yes"}},
			Status: corev1.NodeStatus{
				NodeInfo:   corev1.NodeSystemInfo{KernelVersion: running},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		},
		config: &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "c1", OwnerReferences: []metav1.OwnerReference{{UID: "n1"}},
			Labels: map[string]string{v1beta1.ConfiguredLabel("team", "nic"): "", v1beta1.InUseLabel("team", "nic"): ""},
		}},
	}
}

func (s *scene) play(t *testing.T) outcome {
	t.Helper()
	key := types.NamespacedName{Namespace: "team", Name: "nic"}
	if s.view.config != nil {
		s.view.addConfig(key, s.view.config)
	}
	pl := &planner{
		snap:    &snapshot{key: key, module: s.module, nodes: []view{s.view}, defined: metav1.NewTime(s.defined), verdict: s.verdict, allocation: s.allocation},
		options: &Options{AgentImage: "agent:1", DeliveryMode: delivery.ModeImageVolume},
		trusted: func(types.UID) bool { return s.trusted },
		resting: func(_, _ string, retry time.Time) bool { return s.resting && retry.IsZero() },
		failed:  func(string, string) time.Time { return time.Time{} },
		waited:  func(types.UID) time.Duration { return s.waited },
		drained: func(string) wait { return wait{} },
		seen:    &rollout.Sightings{},
		now:     noon,

		unwanted: map[types.UID]time.Time{}, stillUnwanted: map[types.UID]time.Time{},
	}
	if !s.unwanted.IsZero() {
		pl.unwanted["n1"] = s.unwanted
	}
	if s.unsealed {
		pl.snap.unsealed = &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused}
	}
	if s.module != nil && s.module.Spec.ModuleLoader != nil {
		pl.desired = desired.New(s.module).With(desired.Images{})
	}
	steps, working := pl.decideAll()
	asking := pl.asking(steps)
	granted := map[string]bool{}
	for _, name := range names(asking) {
		granted[name] = true
	}
	p := pl.admit(steps, asking, granted)
	out := outcome{Remaining: p.remaining, Blocked: p.blocked != nil, Working: len(working) > 0, Patience: p.patience, Told: p.holders["n"].Reason}
	for i := range p.steps {
		st := &p.steps[i]
		out.Creates, out.Discards, out.Removes, out.Failed = st.request != nil, len(st.discard) > 0, st.remove, st.failed != nil
		if st.write != nil {
			out.Writes, out.State, out.Reason = true, st.write.State, st.write.Reason
			out.Paused, out.Asked, out.Excused = st.write.Paused, st.write.Retry != nil, st.write.Excused != nil
			if st.write.Delivery != nil {
				out.Carrier = st.write.Delivery.CarrierUID
			}
		}
	}
	return out
}
