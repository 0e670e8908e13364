// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/claims"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/placement"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/words"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch

// roleDRA is the value of the role label on what is made for a DRA driver.
const roleDRA = "dra"

// maxClaims is how many claims a message names.
const maxClaims = 3

// drainDelay is how often what is about to be unloaded is looked at again without an event.
const drainDelay = 5 * time.Second

// allocation is what is known of the devices of a Module's DRA driver.
type allocation struct {
	// driver is the name of the Module's DRA driver; empty: it has none, and nothing here matters.
	driver string
	// held are the claims that pods hold devices of it by.
	held []resourcev1.ResourceClaim
	// pods are the nodes that a pod of the driver is on.
	pods map[string]bool
}

// allocation reads it. Without a DRA driver it reads nothing.
func (c *Controller) allocation(ctx context.Context, m *v1beta1.Module) (allocation, error) {
	a := allocation{pods: map[string]bool{}}
	if m == nil || m.Spec.DRA == nil || !c.options.DRA {
		return a, nil
	}
	a.driver = m.Spec.DRA.DriverName
	var err error
	if a.held, err = heldClaims(ctx, c.client, a.driver, client.UnsafeDisableDeepCopy); err != nil {
		return a, err
	}
	var pods corev1.PodList
	err = c.client.List(ctx, &pods, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name, v1beta1.RoleLabel: roleDRA})
	if err != nil {
		return a, fmt.Errorf("list the pods of a DRA driver: %w", err)
	}
	for i := range pods.Items {
		if owner := metav1.GetControllerOfNoCopy(&pods.Items[i]); owner != nil && owner.Kind == "DaemonSet" && !delivery.Ended(&pods.Items[i]) {
			a.pods[pods.Items[i].Spec.NodeName] = true
		}
	}
	return a, nil
}

func heldClaims(ctx context.Context, r client.Reader, driver string, options ...client.ListOption) ([]resourcev1.ResourceClaim, error) {
	var all resourcev1.ResourceClaimList
	if err := r.List(ctx, &all, options...); err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	var held []resourcev1.ResourceClaim
	for i := range all.Items {
		if claims.Holds(&all.Items[i], driver) {
			held = append(held, all.Items[i])
		}
	}
	return held, nil
}

// drain keeps back what would take the kernel module away under devices that pods have claimed:
//
//	Present ──no claim──► Draining: the ready label goes, and the driver with it ──driver gone, no claim──► the order
//	   ▲                     │
//	   └───────a claim───────┘
//
// A claim that came in the meantime brings the driver back: without it, its pod could not end. For a Module that is being
// deleted, all this ends with the Module's patience; and a node that is not Ready carries out nothing anyway.
func (pl *planner) drain(s *step) {
	v, a := s.view, &pl.snap.allocation
	if a.driver == "" || s.write == nil || !v.inKernel() || !placement.Ready(v.node) || !disturbs(v.entry, s.write) || pl.overdue() {
		return
	}
	pl.taint(v.name)
	held := claims.On(v.node, a.held)
	var next *v1beta1.NodeModuleSpec
	switch {
	case len(held) > 0:
		pl.claimed(v.name, held)
		pl.expel(s)
		if v.entry != nil && v.entry.State == v1beta1.NodeModuleDraining {
			next = v.entry.DeepCopy()
			next.State, next.Reason = v1beta1.NodeModulePresent, ""
			s.restores = true
		}
	case v.entry != nil && v.entry.State != v1beta1.NodeModuleDraining:
		next = v.entry.DeepCopy()
		next.State, next.Reason = v1beta1.NodeModuleDraining, s.write.Reason
	case a.pods[v.name]: // it is on its way
	default:
		s.drained = true
		return
	}
	pl.draining = true
	s.request, s.write = nil, next
}

// expel has the pods evicted that hold a node's devices, where spec.rollout.drain is about holders. One that is about the node evicts all pods anyway.
func (pl *planner) expel(s *step) {
	if policy, bounded := pl.drainPolicy(); bounded && policy == v1beta1.DrainHolders && s.write.UnloadPolicy != v1beta1.UnloadOnReboot {
		s.consumers = claims.Pods(s.view.node, pl.snap.allocation.held)
		s.evict = s.evict || len(s.consumers) > 0
	}
}

// claimed notes what holds a node.
func (pl *planner) claimed(node string, held []string) {
	pl.tell(node, &reasons.Problem{
		Reason:  v1beta1.ReasonInUse,
		Message: "pods hold devices of " + pl.snap.allocation.driver + " by ResourceClaims " + words.List(held, maxClaims),
	})
}

// tell notes what is to be said of a node.
func (pl *planner) tell(node string, problem *reasons.Problem) {
	if pl.holders == nil {
		pl.holders = map[string]reasons.Problem{}
	}
	pl.holders[node] = *problem
}

// overdue reports whether a Module that is being deleted has waited for as long as it may.
func (pl *planner) overdue() bool {
	m := pl.snap.module
	return m.DeletionTimestamp != nil && !pl.now.Before(m.DeletionTimestamp.Add(placement.Patience(m)))
}

// inKernel reports whether the kernel module is in the kernel in this boot.
func (v *view) inKernel() bool {
	return v.node != nil && v.live != nil && v.live.BootID != "" && v.live.BootID == v.node.Status.NodeInfo.BootID
}

// disturbs reports whether the agent unloads for an order that follows an entry, which may be nil.
func disturbs(entry, order *v1beta1.NodeModuleSpec) bool {
	switch {
	case entry == nil || order.State == v1beta1.NodeModuleAbsent:
		return order.State == v1beta1.NodeModuleAbsent && (entry == nil || entry.State != v1beta1.NodeModuleAbsent)
	case entry.State == v1beta1.NodeModuleAbsent:
		return false
	}
	return !equality.Semantic.DeepEqual(entry.Config, order.Config) || idOf(entry) != idOf(order)
}

func idOf(order *v1beta1.NodeModuleSpec) string {
	if order.Delivery == nil {
		return ""
	}
	return order.Delivery.ID
}

// confirm asks the API server itself for claims before a drained node gets its order: the cache may not show the newest.
func (c *Controller) confirm(ctx context.Context, snap *snapshot, p *plan) error {
	drained := func(s step) bool { return s.drained }
	if !slices.ContainsFunc(p.steps, drained) {
		return nil
	}
	held, err := heldClaims(ctx, c.live, snap.allocation.driver)
	if err != nil {
		return err
	}
	for i := range p.steps {
		if s := &p.steps[i]; s.drained && len(claims.On(s.view.node, held)) > 0 {
			s.request, s.write = nil, nil
			p.draining = true
		}
	}
	return nil
}

// made counts what belongs to the Module and goes before its finalizer does: DeviceClasses, which no owner reference takes
// along, and, where no kernel module keeps the Module, the driver that claims are unprepared by.
func (c *Controller) made(ctx context.Context, m *v1beta1.Module) (int, error) {
	if m == nil || m.DeletionTimestamp == nil || !c.options.DRA {
		return 0, nil
	}
	var classes resourcev1.DeviceClassList
	err := c.client.List(ctx, &classes, client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name, v1beta1.ModuleNamespaceLabel: m.Namespace})
	if err != nil {
		return 0, fmt.Errorf("list DeviceClasses: %w", err)
	}
	count := 0
	for i := range classes.Items {
		if kube.WrittenBy(&classes.Items[i], kube.OwnerPlugin) {
			count++
		}
	}
	if m.Spec.ModuleLoader != nil {
		return count, nil
	}
	var daemonSets appsv1.DaemonSetList
	err = c.client.List(ctx, &daemonSets, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name, v1beta1.RoleLabel: roleDRA})
	if err != nil {
		return 0, fmt.Errorf("list the DaemonSets of a DRA driver: %w", err)
	}
	for i := range daemonSets.Items {
		if kube.MadeFor(&daemonSets.Items[i], m.UID) {
			count++
		}
	}
	return count, nil
}

// claimChanged queues the Modules whose driver a claim is about, when pods begin or end to hold devices by it.
func (c *Controller) claimChanged(ctx context.Context, q queue, objects ...client.Object) {
	drivers := map[string]bool{}
	for _, object := range objects {
		claim, ok := object.(*resourcev1.ResourceClaim)
		if !ok || claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			drivers[claim.Status.Allocation.Devices.Results[i].Driver] = true
		}
	}
	if len(drivers) > 0 {
		c.enqueueModules(ctx, q, func(m *v1beta1.Module) bool { return m.Spec.DRA != nil && drivers[m.Spec.DRA.DriverName] })
	}
}

func (c *Controller) claimEvents() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { c.claimChanged(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { c.claimChanged(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, okBefore := e.ObjectOld.(*resourcev1.ResourceClaim)
			now, okNow := e.ObjectNew.(*resourcev1.ResourceClaim)
			if okBefore && okNow && (len(before.Status.ReservedFor) > 0) != (len(now.Status.ReservedFor) > 0) {
				c.claimChanged(ctx, q, before, now)
			}
		},
	}
}
