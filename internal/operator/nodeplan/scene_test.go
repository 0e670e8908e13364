// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/strikes"
)

const (
	running = "6.1.0-37-amd64"
	ours    = types.UID("carrier-1")
)

var key = types.NamespacedName{Namespace: "team", Name: "nic"}

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

// aimed is the order that given makes for the running kernel.
func aimed(t *testing.T) *v1beta1.NodeModuleSpec {
	t.Helper()
	n := emptyNode()
	a := (&Pass{Key: key, Module: given(), Wants: desired.New(given()).With(desired.Images{})}).Aim(&n)
	if a.Order == nil {
		t.Fatalf("aim %+v", a)
	}
	return a.Order
}

// scene is one node and what is known about it.
type scene struct {
	module *v1beta1.Module
	node   Node
	// memory of the process
	trusted, resting bool
	unsealed         bool
	// waited is how long the process has seen the carriers as they are.
	waited time.Duration
	// defined is since when there are Modules.
	defined time.Time
	// unwanted is since when the process knows the node to be unwanted.
	unwanted time.Time
	// silent is how long the process has waited for an answer to the order.
	silent  time.Duration
	verdict strikes.Verdict
	// devices are what is known of claimed ones.
	devices Devices
}

// outcome is what a plan does with the node, in words.
type outcome struct {
	Creates, Discards, Writes, Removes, Failed, Working, Quiet bool
	Remaining                                                  int
	State                                                      v1beta1.NodeModuleState
	Reason                                                     string
	Carrier                                                    types.UID
	Blocked                                                    bool
	// Paused and Asked (for a retry) are what is written beside.
	Paused, Asked, Excused bool
	Patience               time.Duration
	// Taints the node's devices.
	Taints bool
	// Told is what is said of the node.
	Told string
}

func emptyNode() Node {
	return Node{
		Name: "n",
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n1", Labels: map[string]string{"nic": "yes"}},
			Status: corev1.NodeStatus{
				NodeInfo:   corev1.NodeSystemInfo{KernelVersion: running, BootID: thisBoot},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		},
		Config: &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "c1", OwnerReferences: []metav1.OwnerReference{{UID: "n1"}},
			Labels: map[string]string{v1beta1.ConfiguredLabel("team", "nic"): "", v1beta1.InUseLabel("team", "nic"): ""},
		}},
	}
}

func (s *scene) play(t *testing.T) outcome {
	t.Helper()
	n := s.node
	if n.Config != nil {
		n.Read(key, n.Config)
	}
	p := Pass{
		Key: key, Module: s.module, Verdict: s.verdict, Defined: metav1.NewTime(s.defined), Devices: s.devices,
		Carriers: Carriers{Image: "agent:1", Mode: delivery.ModeImageVolume},
		Memory:   Memory{Carriers: map[types.UID]Sight{}, Failures: map[Place]Failure{}, Unwanted: map[types.UID]time.Time{}},
		Now:      noon,
	}
	for _, pod := range n.Carriers {
		p.Memory.Carriers[pod.UID] = Sight{Created: s.trusted, Since: noon.Add(-s.waited)}
	}
	if s.resting {
		p.Memory.Failures[Place{"n", "r/nic:1"}] = Failure{Until: noon.Add(time.Second)}
	}
	if !s.unwanted.IsZero() {
		p.Memory.Unwanted["n1"] = s.unwanted
	}
	if s.silent > 0 {
		p.Memory.Silent = map[types.UID]time.Time{"n1": noon.Add(-s.silent)}
	}
	if s.unsealed {
		p.Unsealed = &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused}
	}
	if s.module != nil {
		p.Wants = desired.New(s.module).With(desired.Images{})
	}
	nodes, aims := []Node{n}, []Aim{p.Aim(&n)}
	var r *rollout.Plan
	if parts, rolls := p.Parts(nodes, aims); rolls {
		r = rollout.Make(parts, rollout.PolicyOf(s.module), noon)
	}
	pl := p.Make(nodes, aims, r)[0]
	step := pl.Step()
	out := outcome{
		Creates: step.Create != nil, Discards: len(step.Discard) > 0, Removes: step.Remove, Failed: step.Failed != nil,
		Blocked: pl.Delivery.Hold != nil, Working: pl.Delivery.Works, Taints: pl.Drain.Taint,
		Quiet: pl.Delivery.Works && !pl.Delivery.Quiet.After(noon),
	}
	if s.module != nil && step.Remains() {
		out.Remaining = 1
	}
	for _, due := range []time.Duration{pl.Aim.Due, pl.Delivery.Due, pl.Drain.Due} {
		if out.Patience == 0 || due > 0 && due < out.Patience {
			out.Patience = due
		}
	}
	if tell := pl.Tell(); tell != nil {
		out.Told = tell.Reason
	}
	if o := step.Write; o != nil {
		out.Writes, out.State, out.Reason = true, o.State, o.Reason
		out.Paused, out.Asked, out.Excused = o.Paused, o.Retry != nil, o.Excused != nil
		if o.Delivery != nil {
			out.Carrier = o.Delivery.CarrierUID
		}
	}
	return out
}
