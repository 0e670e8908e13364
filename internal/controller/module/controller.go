// SPDX-License-Identifier: Apache-2.0

// Package module turns Modules into orders for nodes.
//
// Reads: Module, Node, NodeModulesConfig, carrier pods, the admission policies that deliveries and reports rely on, and whether the CRDs
// are being deleted. Writes: this Module's entry in NodeModulesConfig.spec, carrier pods, the Module's finalizer,
// what keeps images and orders from nodes in the Module's status, and one event for a Module that goes before all nodes
// have answered. Nothing else, and never a condition.
//
// A pass is observe, plan, act. The plan is pure; what is already right is not written. The client waits until its cache
// has seen its own writes (controller-runtime's read-your-writes consistency), so a pass never repeats the one before.
//
// An unload is an order, never an absence. An entry leaves in two steps:
//
//	wanted ──► state: Absent + reason ──► agent unloads, reports attempt Absent ──► entry removed ──► empty: object deleted
//	   ▲                  │
//	   └── wanted again ──┘
//
// The ready label goes off before the kernel module does, so that device plugin pods leave first: the controller of
// node labels takes it off when it sees the order. The order does not wait for that. Should the agent come first, it
// finds the module in use, says so and tries again, which ends the same way without a controller that waits for another.
package module

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/gate"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/problems"
	"github.com/drover-project/drover/internal/rollout"
)

const (
	// staleDelay is the pause after a write was refused because its base had changed: the cache needs a moment.
	staleDelay = 100 * time.Millisecond
	// slotDelay is how often a Module asks again for delivery slots that other Modules hold.
	slotDelay = 5 * time.Second
)

// Options of the controller.
type Options struct {
	// AgentImage is the image of carrier pods, the one that the admission policy expects.
	AgentImage string
	// DeliveryMode chooses how carriers read images.
	DeliveryMode delivery.Mode
	// CarrierUser is the numeric user of carriers that run the kernel module image itself; nil lets the cluster choose.
	CarrierUser *int64
	// DeliveryMaxInFlight bounds carriers at work in the cluster. 0 is 100.
	DeliveryMaxInFlight int
	// Parallelism bounds writes at the same time, per Module. 0 is 32.
	Parallelism int
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	// Recorder tells of Modules that go before all nodes have answered.
	Recorder kube.Recorder
	// Images: a controller has images built and signed, so that those that are asked for are waited for.
	Images bool
	// DRA: the API server serves what DRA drivers need.
	DRA bool
	// Taints keep pods off devices in change; nil where the API server serves no DeviceTaintRules.
	Taints DeviceTaints
	// Clock is for back-off; nil is the time of day.
	Clock clock.PassiveClock
}

func (o *Options) setDefaults() {
	if o.DeliveryMaxInFlight <= 0 {
		o.DeliveryMaxInFlight = 100
	}
	if o.Parallelism <= 0 {
		o.Parallelism = 32
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Controller reconciles Modules into NodeModulesConfigs.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
	ledger  *ledger
	desired desired.Memory
	// unwanted is since when nodes are not wanted any more.
	unwanted *calendar
	drains   waits
	// seen is since when nodes have what is rolled out.
	seen rollout.Sightings
	// reports is when the policy was seen that keeps agents to their own node.
	reports glance
}

// New makes the controller. c reads from a cache that shows c's own writes; live reads from the API server.
func New(c client.Client, live client.Reader, options Options) *Controller {
	options.setDefaults()
	return &Controller{
		client:  c,
		live:    live,
		options: options,
		ledger:  newLedger(options.DeliveryMaxInFlight, options.Clock),

		unwanted: newCalendar(),
	}
}

// Reconcile makes the orders for one Module what they shall be, as far as they can be now.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	snap, err := c.observe(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if snap.crdsLeaving {
		return ended(c.letGo(ctx, snap), ctrl.Result{RequeueAfter: drainDelay})
	}
	if m := snap.module; m != nil && m.DeletionTimestamp == nil {
		if err := kube.AddFinalizer(ctx, c.client, m, v1beta1.ModuleFinalizer); err != nil {
			return ended(err, reconcile.Result{})
		}
	}
	p := c.plan(snap)
	if p.unloadsAll {
		if departed, err := c.departed(ctx, snap); err != nil || !departed {
			return reconcile.Result{RequeueAfter: staleDelay}, err
		}
		c.ledger.forget(snap.key)
		c.seen.Forget(snap.key)
	}
	err = c.carryOut(ctx, snap, p)
	return ended(err, reconcile.Result{RequeueAfter: c.again(snap.key, p)})
}

// carryOut does what is planned, and tells what keeps it from nodes.
func (c *Controller) carryOut(ctx context.Context, snap *snapshot, p *plan) error {
	log.FromContext(ctx).V(2).Info("Planned", "nodes", len(snap.nodes), "steps", len(p.steps), "remaining", p.remaining)
	if err := c.vacate(ctx, p); err != nil {
		return err
	}
	tainted := c.taint(ctx, snap, p)
	if err := c.confirm(ctx, snap, p); err != nil {
		return err
	}
	// What refuses a taint stops nothing: the claims are read once more before the order.
	err := errors.Join(tainted, c.act(ctx, p.steps))
	told := c.report(ctx, snap, p)
	if err == nil && p.remaining == len(p.left) && snap.made == 0 {
		err = c.release(ctx, snap.module, p.left...)
	}
	p.draining = p.draining || snap.made > 0
	return errors.Join(err, told)
}

// report tells what keeps the Module's image, and orders, from nodes that are still there.
func (c *Controller) report(ctx context.Context, snap *snapshot, p *plan) error {
	if snap.module == nil {
		return nil
	}
	found := c.ledger.problems(snap.key, p.blocked)
	maps.Copy(found, p.holders)
	return problems.Report(ctx, c.client, snap.module, v1beta1.ProblemDeliveries, found)
}

// letGo releases all that a finalizer of ours keeps, or the CRDs could not go. Nothing is unloaded.
func (c *Controller) letGo(ctx context.Context, snap *snapshot) error {
	var steps []step
	for i := range snap.nodes {
		if v := &snap.nodes[i]; held(v.config) {
			steps = append(steps, step{key: snap.key, view: v, free: true})
		}
	}
	err := kube.Each(ctx, c.options.Parallelism, steps, c.perform)
	if err != nil || snap.made > 0 {
		return err
	}
	return c.release(ctx, snap.module)
}

// release lets a Module go that is being deleted, and tells of the nodes that it leaves as they are.
func (c *Controller) release(ctx context.Context, m *v1beta1.Module, left ...*view) error {
	if m == nil || m.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(m, v1beta1.ModuleFinalizer) {
		return nil
	}
	if err := kube.RemoveFinalizer(ctx, c.client, m, v1beta1.ModuleFinalizer); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if len(left) > 0 {
		c.options.Recorder.Warn(m, v1beta1.ReasonAbandoned, actionLeave, leftover(left))
	}
	return nil
}

// again is when the next pass is due without an event; 0 is never.
func (c *Controller) again(key client.ObjectKey, p *plan) time.Duration {
	next := c.ledger.nextRetry(key)
	soon := func(d time.Duration) {
		if next == 0 || next > d {
			next = d
		}
	}
	if p.patience > 0 {
		soon(p.patience)
	}
	if p.draining {
		soon(drainDelay)
	}
	if p.rollout > 0 {
		soon(p.rollout)
	}
	if p.blocked != nil {
		soon(statusPolicyRest) // no event tells of the policy for reports
	}
	if p.queued > 0 {
		soon(slotDelay)
	}
	return next
}

// ended turns the end of a pass into a result: what is only outdated is tried again soon and is nobody's concern.
func ended(err error, result reconcile.Result) (reconcile.Result, error) {
	if err == nil {
		return result, nil
	}
	if onlyOutdated(err) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	return reconcile.Result{}, err
}

// onlyOutdated looks through joined errors: one that is more than outdated must be seen.
func onlyOutdated(err error) bool {
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if joined, ok := cause.(interface{ Unwrap() []error }); ok {
			for _, each := range joined.Unwrap() {
				if !onlyOutdated(each) {
					return false
				}
			}
			return true
		}
	}
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
