// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/claims"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// claim is one that the pod p on the node holds a device by, as the scheduler leaves it.
func (w *world) claim(driver string, node *corev1.Node, pod types.UID) *resourcev1.ResourceClaim {
	w.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "d",
		Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "any.example.com"}}}
	w.must(w.admin.Create(w.Context(), claim))
	claim.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}}},
	}}}}
	claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "d", Driver: driver, Pool: node.Name,
		Device: "d0"}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: pod}}
	w.must(w.admin.Status().Update(w.Context(), claim))
	return claim
}

// TestAModuleWithClaimedDevicesStaysWhole: the kernel module goes after the driver, the driver
// after the claims, and the Module after its DeviceClasses.
func TestAModuleWithClaimedDevicesStaysWhole(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	w := newWorld(t)
	w.control = module.New(w.operator, w.operator,
		module.Options{AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events), DRA: true})
	node, m := w.node("a"), w.module("nic")
	driver := w.namespace + ".example.com"
	m.Spec.DRA = &v1beta1.DRASpec{DriverName: driver, Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
	w.must(w.admin.Update(t.Context(), m))
	w.load(node, m)
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: map[string]string{
		v1beta1.ModuleNameLabel: m.Name, v1beta1.ModuleNamespaceLabel: m.Namespace,
	}}}
	w.must(w.operator.Create(t.Context(), class, kube.OwnerPlugin))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "driver", Labels: map[string]string{v1beta1.ModuleNameLabel: m.Name, v1beta1.RoleLabel: "dra"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "nic-dra", UID: "ds", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "dra", Image: "example.com/driver:1"}}},
	}
	w.must(w.admin.Create(t.Context(), pod))
	claim := w.claim(driver, node, "p1")
	w.must(w.admin.Delete(t.Context(), m))

	w.pass(m)
	w.quiet(m)
	if e := w.ordered(node, m); e.State != "" && e.State != v1beta1.NodeModulePresent {
		t.Errorf("with a claim, the order is %s", e.State)
	}
	if p := w.problems(m)[node.Name]; p.Reason != v1beta1.ReasonInUse || !strings.Contains(p.Message, w.namespace+"/claim") {
		t.Errorf("the claim is not named: %+v", p)
	}

	claim.Status.ReservedFor = nil
	w.must(w.admin.Status().Update(t.Context(), claim))
	w.pass(m)
	w.quiet(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleDraining {
		t.Errorf("without a claim, and with the driver, the order is %q", e.State)
	}

	// Its node's kubelet does not answer: there is none.
	w.must(w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(5)))
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	w.clock.SetTime(pod.DeletionTimestamp.Time)
	if after := w.pass(m).RequeueAfter; after == 0 {
		t.Error("while the driver has not ended, no other pass is due")
	}
	if p := w.problems(m)[node.Name]; p.Reason != "" {
		t.Errorf("when the driver should have ended, it says %+v", p)
	}
	w.clock.SetTime(pod.DeletionTimestamp.Add(time.Minute))
	w.pass(m)
	w.quiet(m)
	if p := w.problems(m)[node.Name]; p.Reason != v1beta1.ReasonInUse || !strings.Contains(p.Message, "pod "+w.namespace+"/driver") {
		t.Errorf("the driver's pod is not named: %+v", p)
	}
	w.must(w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleAbsent {
		t.Errorf("without the driver, the order is %q", e.State)
	}
	w.agent(node, gone(v1beta1.NodeModulesConfigStatus{}, m))
	w.pass(m)
	if !w.exists(m) {
		t.Error("the Module went before its DeviceClass")
	}
	w.must(w.operator.Delete(t.Context(), class))
	w.pass(m)
	if w.exists(m) {
		t.Error("the Module is left")
	}
}

// TestADriverThatIsNoLongerAskedForKeepsItsClaims: the Module changes and names no driver, or
// another one, while pods have devices of the one that serves.
func TestADriverThatIsNoLongerAskedForKeepsItsClaims(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	for name, change := range map[string]func(*v1beta1.Module){
		"none":    func(m *v1beta1.Module) { m.Spec.DRA = nil },
		"another": func(m *v1beta1.Module) { m.Spec.DRA.DriverName += ".new" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.control = module.New(w.operator, w.operator,
				module.Options{AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events), DRA: true})
			node, m := w.node("a"), w.module("nic")
			driver := w.namespace + ".example.com"
			m.Spec.DRA = &v1beta1.DRASpec{DriverName: driver, Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
			w.must(w.admin.Update(t.Context(), m))
			w.load(node, m)
			labels := map[string]string{v1beta1.ModuleNameLabel: m.Name, v1beta1.RoleLabel: v1beta1.RoleDRA}
			ds := &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nic-dra", Labels: labels,
					Annotations: map[string]string{claims.DriverAnnotation: driver, kube.ModuleAnnotation: string(m.UID)}},
				Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "dra", Image: "example.com/driver:1"}}},
				}},
			}
			w.must(w.admin.Create(t.Context(), ds))
			w.claim(driver, node, "p1")
			w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), m))
			change(m)
			w.must(w.admin.Update(t.Context(), m))
			w.must(w.admin.Delete(t.Context(), m))

			w.pass(m)

			if e := w.ordered(node, m); e.State != "" && e.State != v1beta1.NodeModulePresent {
				t.Errorf("with a claim, the order is %s", e.State)
			}
			if p := w.problems(m)[node.Name]; p.Reason != v1beta1.ReasonInUse || !strings.Contains(p.Message, driver) {
				t.Errorf("the claim is not named: %+v", p)
			}
		})
	}
}

// TestTheNewestClaimCounts: a cache that does not show a claim yet must not lead to an unload.
func TestTheNewestClaimCounts(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	w := newWorld(t)
	lagging := interceptor.NewClient(w.operator, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if claims, ok := list.(*resourcev1.ResourceClaimList); ok {
				claims.Items = nil
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	options := module.Options{AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events), DRA: true}
	w.control = module.New(lagging, w.operator, options)
	node, m := w.node("a"), w.module("nic")
	m.Spec.DRA = &v1beta1.DRASpec{DriverName: w.namespace + ".example.com",
		Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
	w.must(w.admin.Update(t.Context(), m))
	w.load(node, m)
	w.claim(m.Spec.DRA.DriverName, node, "p1")
	w.must(w.admin.Delete(t.Context(), m))
	for range 3 {
		w.pass(m)
	}
	if e := w.ordered(node, m); e.State != v1beta1.NodeModuleDraining {
		t.Errorf("the order is %q", e.State)
	}
	// As soon as the cache shows it, the driver is called back.
	w.control = module.New(w.operator, w.operator, options)
	w.pass(m)
	if e := w.ordered(node, m); e.State != v1beta1.NodeModulePresent {
		t.Errorf("the order is %q", e.State)
	}
}

// tainter notes whose devices are tainted, as package devicetaint would have it.
type tainter struct{ tainted map[string]bool }

func (r *tainter) Keep(_ context.Context, _ types.NamespacedName, _ string, begin, stay map[string]bool) error {
	for node := range r.tainted {
		if !begin[node] && !stay[node] {
			delete(r.tainted, node)
		}
	}
	for node := range begin {
		r.tainted[node] = true
	}
	return nil
}

// TestDevicesAreTaintedForAChange: from before the claims are waited for until the node's kernel
// module serves again.
func TestDevicesAreTaintedForAChange(t *testing.T) {
	env.Get(t).NeedsDRA(t)
	failed := func(s v1beta1.NodeModulesConfigStatus, m *v1beta1.Module) v1beta1.NodeModulesConfigStatus {
		s.Attempts = []v1beta1.NodeModuleAttempt{{
			Namespace: m.Namespace, Name: m.Name, State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed,
		}}
		return s
	}
	for _, test := range []struct {
		name string
		ends func(w *world, node *corev1.Node, m *v1beta1.Module)
	}{
		{"the new build is live", func(w *world, node *corev1.Node, m *v1beta1.Module) {
			w.agent(node, w.live(w.ordered(node, m), 0))
		}},
		{"the new build does not load, and the one before serves", func(w *world, node *corev1.Node, m *v1beta1.Module) {
			w.agent(node, failed(w.config(node).Status, m))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, taints := newWorld(t), &tainter{tainted: map[string]bool{}}
			node, m := w.upgrade("")
			w.control = module.New(w.operator, w.operator, module.Options{
				AgentImage: env.AgentImage, Clock: w.clock, Recorder: kube.NewRecorder(w.events), DRA: true, Taints: taints,
			})
			w.change(m, func(m *v1beta1.Module) {
				m.Spec.DRA = &v1beta1.DRASpec{DriverName: w.namespace + ".example.com",
					Container: v1beta1.WorkloadContainer{Image: "example.com/driver:1"}}
			})
			claim := w.claim(m.Spec.DRA.DriverName, node, "p1")
			tainted := func(when string, want bool) {
				t.Helper()
				if taints.tainted[node.Name] != want {
					t.Errorf("%s: tainted is %v", when, !want)
				}
			}
			before := w.ordered(node, m).Config.ContainerImage
			w.pass(m)
			tainted("while a claim holds the node", true)
			claim.Status.ReservedFor = nil
			w.must(w.admin.Status().Update(t.Context(), claim))
			w.pass(m)
			if e := w.ordered(node, m); e.State != v1beta1.NodeModuleDraining {
				t.Fatalf("without a claim, the order is %q", e.State)
			}
			tainted("while the driver leaves", true)
			w.pass(m)
			if e := w.ordered(node, m); e.Config.ContainerImage == before {
				t.Fatal("the new build is not ordered")
			}
			w.pass(m)
			tainted("until the order is carried out", true)
			test.ends(w, node, m)
			w.pass(m)
			tainted("after that", false)
		})
	}
}
