// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/testkit/env"
)

const upgrade = "example.com/upgrade"

// taint makes these the node's taints.
func (w *world) taint(node *corev1.Node, keys ...string) {
	w.Helper()
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Taints = nil
	for _, key := range keys {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	w.must(w.admin.Patch(w.Context(), node, patch))
}

// obeys makes a controller for which a taint asks for an unload.
func (w *world) obeys() {
	w.control = module.New(w.operator, w.operator, module.Options{AgentImage: env.AgentImage, Clock: w.clock,
		Recorder: kube.NewRecorder(w.events), UnloadTaints: placement.UnloadTaints{upgrade}})
}

// TestATaintThatAsksIsAnOrder: it unloads at once, and the node is loaded as a new one when it
// goes. A Module that tolerates it stays.
func TestATaintThatAsksIsAnOrder(t *testing.T) {
	w := newWorld(t)
	w.obeys()
	node, m, other := w.node("a"), w.module("nic"), w.module("fs")
	other.Spec.Tolerations = []corev1.Toleration{{Key: upgrade, Operator: corev1.TolerationOpExists}}
	w.must(w.admin.Update(t.Context(), other))
	w.pass(other)
	w.pass(m)
	w.agent(node, loaded(w.ordered(node, m), w.ordered(node, other)))
	w.pass(m)
	w.pass(other)
	w.reap()
	w.taint(node, "dedicated")
	w.quiet(m)

	w.taint(node, "dedicated", upgrade)
	w.quiet(other)
	w.pass(m)
	order := w.ordered(node, m)
	if order.State != v1beta1.NodeModuleAbsent || order.Reason != nodeplan.ReasonTainted {
		t.Fatalf("state %q, reason %q", order.State, order.Reason)
	}
	w.quiet(m)
	w.agent(node, gone(loaded(w.ordered(node, other)), m))
	w.pass(m)
	if w.entry(node, m) != nil {
		t.Error("the order stays after its answer")
	}
	w.quiet(m)

	w.taint(node)
	w.pass(m)
	if order := w.ordered(node, m); order.State == v1beta1.NodeModuleAbsent || order.Reason != "" {
		t.Errorf("without the taint: state %q, reason %q", order.State, order.Reason)
	}
}

// TestATaintWakesAPass: by the watches of a running operator, for a node that is selected and for
// one that no longer is.
func TestATaintWakesAPass(t *testing.T) {
	w := newWorld(t)
	w.obeys()
	m := w.module("nic")
	nodes := []*corev1.Node{w.node("a"), w.node("b")}
	for _, node := range nodes {
		w.load(node, m)
	}
	options := &operator.Options{
		Namespace: env.OperatorNamespace, MetricsAddress: "0", ProbeAddress: "0", Controllers: []string{"*"},
		Orders: module.Options{AgentImage: env.AgentImage}, UnloadTaints: placement.UnloadTaints{upgrade},
	}
	mgr, err := operator.NewManager(w.env.Config(w, env.Operator), options)
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, mgr, options, map[string]operator.Controller{
			"module": module.New(mgr.GetClient(), mgr.GetAPIReader(), options.Module(kube.Recorder{}, nil, nil)),
		})
	}()
	defer func() {
		cancel()
		w.must(<-ended)
	}()
	answered := func(what string, node *corev1.Node, done func(*v1beta1.NodeModuleSpec) bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			return done(w.entry(node, m)), nil
		})
		if err != nil {
			t.Fatalf("%s: %+v", what, w.entry(node, m))
		}
	}
	absent := func(o *v1beta1.NodeModuleSpec) bool {
		return o != nil && o.State == v1beta1.NodeModuleAbsent && o.Reason == nodeplan.ReasonTainted
	}
	w.relabel(nodes[1], "other")
	for _, node := range slices.Backward(nodes) {
		w.taint(node, upgrade)
		answered("the taint comes", node, absent)
		w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
		answered("the answer comes", node, func(o *v1beta1.NodeModuleSpec) bool { return o == nil })
	}
	w.taint(nodes[0])
	answered("the taint goes", nodes[0], func(o *v1beta1.NodeModuleSpec) bool { return o != nil && !absent(o) })
}
