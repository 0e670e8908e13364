// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/testkit/env"
)

func operatorWrites(finalizers, creates, applies, podDeletes, configDeletes int) map[env.Write]int {
	writes := map[env.Write]int{}
	for write, n := range map[env.Write]int{
		{Agent: env.Operator, Verb: "patch", Resource: "modules"}:             finalizers,
		{Agent: env.Operator, Verb: "create", Resource: "pods"}:               creates,
		{Agent: env.Operator, Verb: "patch", Resource: "nodemodulesconfigs"}:  applies,
		{Agent: env.Operator, Verb: "delete", Resource: "pods"}:               podDeletes,
		{Agent: env.Operator, Verb: "delete", Resource: "nodemodulesconfigs"}: configDeletes,
	} {
		if n > 0 {
			writes[write] = n
		}
	}
	return writes
}

func TestAModuleBecomesACarrierAndAnOrder(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")

	mark := w.env.Mark(t)
	w.pass(m)
	carriers := w.carriers(m)
	if len(carriers) != 1 {
		t.Fatalf("%d carriers, want 1", len(carriers))
	}
	entry := w.ordered(node, m)
	want := &v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{Namespace: w.namespace, Name: "nic", ServiceAccountName: "default"},
		Config: v1beta1.ModuleConfig{
			KernelVersion: kernelVersion, ContainerImage: "registry.example/nic:" + kernelVersion,
			Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"},
		},
		Delivery: &v1beta1.Delivery{ID: carriers[0].Annotations[v1beta1.DeliveryAnnotation], CarrierUID: carriers[0].UID},
	}
	if diff := cmp.Diff(want, entry); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if refs := w.config(node).OwnerReferences; len(refs) != 1 || refs[0].UID != node.UID {
		t.Errorf("owner references %v, want the node", refs)
	}
	w.quiet(m)

	w.agent(node, loaded(entry))
	w.pass(m)
	if left := w.carriers(m); len(left) != 0 {
		t.Errorf("%d carriers are left after the delivery", len(left))
	}
	w.quiet(m)
	w.reap()
	w.quiet(m)
	writes := w.env.Writes(t, mark)
	delete(writes, env.Write{Agent: env.Agent, Verb: "patch", Resource: "nodemodulesconfigs/status"})
	if diff := cmp.Diff(operatorWrites(1, 1, 1, 1, 0), writes); diff != "" {
		t.Errorf("writes for one load (-want +got):\n%s", diff)
	}
}

func TestARestartWritesNothing(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.use(w.operator)
	w.quiet(m)
}

func TestARestartKeepsTheCarrierThatAnEntryNames(t *testing.T) {
	w := newWorld(t)
	w.node("a")
	m := w.module("nic")
	w.pass(m)
	w.use(w.operator)
	w.quiet(m)
}

func TestACarrierThatNobodyRemembersIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	failing := interceptor.NewClient(w.operator, interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return apierrors.NewInternalError(errors.New("the operator dies here"))
		},
	})
	w.use(failing)
	if _, err := w.control.Reconcile(t.Context(), request(m)); err == nil {
		t.Fatal("an error of the API server is returned")
	}
	lost := w.carriers(m)[0].UID

	w.use(w.operator)
	w.pass(m)
	if left := w.carriers(m); len(left) != 0 {
		t.Fatal("a carrier that is in no entry and no memory is deleted")
	}
	if w.entry(node, m) != nil {
		t.Fatal("and never named in an entry")
	}
	w.reap()
	w.pass(m)
	if got := w.ordered(node, m).Delivery.CarrierUID; got == lost || got != w.carriers(m)[0].UID {
		t.Errorf("the entry names carrier %q, want the new one", got)
	}
}

func TestADeletedModuleLeavesInTwoSteps(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.must(w.admin.Delete(t.Context(), m))

	w.pass(m)
	entry := w.ordered(node, m)
	if entry.State != v1beta1.NodeModuleAbsent || entry.Reason != nodeplan.ReasonDeleted || entry.Config.ContainerImage == "" {
		t.Errorf("entry %+v, want an order to unload that keeps its config", entry)
	}
	if !w.exists(m) {
		t.Fatal("the Module stays until its kernel module is out")
	}
	w.quiet(m)

	mark := w.env.Mark(t)
	w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
	w.pass(m)
	if nmc := w.config(node); nmc != nil {
		t.Errorf("the object of a node without orders is left: %v", nmc.Spec)
	}
	if w.exists(m) {
		t.Error("the finalizer is released once the agent has answered")
	}
	writes := w.env.Writes(t, mark)
	delete(writes, env.Write{Agent: env.Agent, Verb: "patch", Resource: "nodemodulesconfigs/status"})
	if diff := cmp.Diff(operatorWrites(1, 0, 1, 0, 1), writes); diff != "" {
		t.Errorf("writes for the end (-want +got):\n%s", diff)
	}
	w.quiet(m)
}

func TestADeselectedNodeLeavesAndComesBack(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.deselect(node, m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent || e.Reason != nodeplan.ReasonDeselected {
		t.Errorf("state %s, reason %s", e.State, e.Reason)
	}
	w.relabel(node, w.namespace)
	w.pass(m)
	if e := w.ordered(node, m); e.State == v1beta1.NodeModuleAbsent || e.Reason != "" {
		t.Errorf("state %s, reason %s: the order to unload is taken back", e.State, e.Reason)
	}
	if len(w.carriers(m)) != 0 {
		t.Error("what the node holds is not delivered again")
	}
	w.quiet(m)
}

func TestTaintsDecideOnTheFirstLoadOnly(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	for _, n := range []*corev1.Node{node, w.node("b")} {
		patch := client.MergeFrom(n.DeepCopy())
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoExecute}}
		n.Spec.Unschedulable = true
		w.must(w.admin.Patch(t.Context(), n, patch))
	}
	w.quiet(m)
}

func TestADeletedNodeModulesConfigComesBackWhole(t *testing.T) {
	w := newWorld(t)
	node, first, second := w.node("a"), w.module("nic"), w.module("fs")
	w.pass(first)
	w.pass(second)
	w.must(w.admin.Delete(t.Context(), w.config(node)))
	w.pass(first)
	w.pass(second)
	for _, m := range []*v1beta1.Module{first, second} {
		if e := w.ordered(node, m); e.State != "" {
			t.Errorf("Module %s: state %s", m.Name, e.State)
		}
		w.quiet(m)
	}
}

func TestTwoModulesShareANode(t *testing.T) {
	w := newWorld(t)
	node, first, second := w.node("a"), w.module("nic"), w.module("fs")
	w.pass(first)
	w.pass(second)
	w.agent(node, loaded(w.ordered(node, first), w.ordered(node, second)))
	kept := w.ordered(node, second).DeepCopy()

	w.must(w.admin.Delete(t.Context(), first))
	w.pass(first)
	w.agent(node, gone(loaded(kept), first))
	w.pass(first)
	if w.entry(node, first) != nil || w.exists(first) {
		t.Error("the first Module is gone")
	}
	if diff := cmp.Diff(kept, w.ordered(node, second)); diff != "" {
		t.Errorf("the second's entry (-before +after):\n%s", diff)
	}
	if refs := w.config(node).OwnerReferences; len(refs) != 1 || refs[0].UID != node.UID {
		t.Errorf("owner references %v: the node's stays with whoever is left", refs)
	}
}

func TestANodeThatIsGoneHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	node, m := w.node("a"), w.module("nic")
	w.load(node, m)
	w.must(w.admin.Delete(t.Context(), node))
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	if w.exists(m) {
		t.Error("the finalizer waits for a node that does not exist")
	}
	w.must(w.admin.Delete(t.Context(), w.config(node))) // the garbage collector's part
}

func TestAllRequestsHadTheOperatorsRole(t *testing.T) {
	w := newWorld(t)
	w.node("a")
	w.pass(w.module("nic"))
	w.env.AssertNoMasters(t)
}

func request(m *v1beta1.Module) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
}
