// SPDX-License-Identifier: Apache-2.0

// Package module turns Modules into orders for nodes.
//
// Reads: Module, Node, NodeModulesConfig, carrier pods, ModulePolicies and the labels of namespaces
// that they choose by, the admission policies that deliveries and reports rely on, and whether the
// CRDs are being deleted. Writes: this Module's orders, carrier pods, the Module's finalizer, its
// deliveries' problems in the Module's status, and one event for a Module that goes before all
// nodes have answered, or that a ModulePolicy would deny. Never a condition.
//
// A pass is observe, plan, act. Package nodeplan plans; what is already right is not written. The
// client waits until its cache has seen its own writes, so that no pass repeats the one before.
//
// An unload is an order, never an absence. An order leaves in two steps:
//
//	wanted ──► state: Absent ──► the agent reports Absent ──► order removed ──► empty object deleted
//	   ▲             │
//	   └─────────────┘ wanted again
//
// The controller of node labels takes the ready label off when it sees the order, so that device
// plugin pods leave first. The order does not wait for that: an agent that comes first finds the
// module in use, says so and tries again.
package module

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/operator/pace"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const (
	// staleDelay is the pause after a refusal because a write's base had changed: the cache lags.
	staleDelay = 100 * time.Millisecond
	// slotDelay is how often a Module asks again for delivery slots that other Modules hold.
	slotDelay = 5 * time.Second
	// drainDelay is how often what waits for claims or pods is looked at again without an event.
	drainDelay = 5 * time.Second
)

// delays are how often what holds a change is looked at again without an event.
var delays = map[nodeplan.Holder]time.Duration{
	nodeplan.Slots: slotDelay, nodeplan.Claims: drainDelay, nodeplan.Pods: drainDelay, nodeplan.Policies: statusPolicyRest,
}

// actionLeave is what an event about a Module that leaves says was being done.
const actionLeave = "Unload"

// Options of the controller.
type Options struct {
	// AgentImage is the image of carrier pods, the one that the admission policy expects.
	AgentImage string
	// DeliveryMode chooses how carriers read images.
	DeliveryMode delivery.Mode
	// CarrierUser is the user of carriers that run the kernel module image; nil: the cluster
	// chooses.
	CarrierUser *int64
	// DeliveryMaxInFlight bounds carriers at work in the cluster: see window. 0 is 100.
	DeliveryMaxInFlight int
	// UnloadTaints are those that ask for an unload.
	UnloadTaints placement.UnloadTaints
	// Parallelism bounds writes at the same time, per Module. 0 is 32.
	Parallelism int
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	// Recorder tells of Modules that go before all nodes have answered.
	Recorder kube.Recorder
	// Metrics shows numbers; nil is for nobody.
	Metrics *metrics.Board
	// Images: a controller has images built and signed, so that they are waited for.
	Images bool
	// DRA: the API server serves what DRA drivers need.
	DRA bool
	// Taints keep pods off devices in change; nil where the API server serves no DeviceTaintRules.
	Taints DeviceTaints
	// Self is the operator's own pod, by its host name. No drain evicts it: nothing would be left that
	// ends the drain, on a cluster of one node for good.
	Self types.NamespacedName
	// Clock is for back-off; nil is the time of day.
	Clock clock.PassiveClock
	// Seen is since when nodes have what is rolled out, for all controllers that ask whose turn it is;
	// nil: this one asks alone.
	Seen *rollout.Sightings
	// Budget bounds the nodes that all Modules together make unavailable; nil: nothing does.
	Budget *budget.Budget
}

func (o *Options) setDefaults() {
	if o.DeliveryMaxInFlight <= 0 {
		o.DeliveryMaxInFlight = 100
	}
	if o.Parallelism <= 0 {
		o.Parallelism = 32
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewBoard()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Seen == nil {
		o.Seen = &rollout.Sightings{}
	}
}

// Controller reconciles Modules into NodeModulesConfigs.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
	ledger  *ledger
	desired desired.Memory
	pace    pace.Pace
	// unwanted has nodes in their grace, by UID, silent those that have not answered, and drains those
	// that are emptied, by name. holders are whom agents mean that tell no UIDs.
	unwanted recollection[types.UID, time.Time]
	silent   recollection[types.UID, time.Time]
	drains   recollection[string, nodeplan.Wait]
	holders  recollection[string, nodeplan.Seen]
	// rests are the nodes where the last pass found nothing to do.
	rests rests
	// audited is what was last told, by Module, of policies that are only tried.
	audited sync.Map
	// reports is when the policy was seen that keeps agents to their own node.
	reports atomic.Pointer[time.Time]
}

// New makes the controller. c reads from a cache that shows c's own writes; live reads from the API
// server.
func New(c client.Client, live client.Reader, options Options) *Controller {
	options.setDefaults()
	return &Controller{
		client:  c,
		live:    live,
		options: options,
		ledger:  newLedger(newWindow(options.DeliveryMaxInFlight), options.Clock),
		pace:    pace.Pace{First: settle, Most: settleMost, Each: settleNode},
	}
}

// Reconcile brings the orders for one Module as far as they can be brought now.
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
	if !snap.leaving() {
		if err := kube.AddFinalizer(ctx, c.client, snap.Module, v1beta1.ModuleFinalizer); err != nil {
			return ended(c.refused(ctx, snap.Module, err), reconcile.Result{})
		}
	}
	p := c.plan(snap)
	defer c.settle(snap.Key)
	c.audit(p)
	if snap.leaving() {
		if departed, err := c.departed(ctx, snap); err != nil || !departed {
			return reconcile.Result{RequeueAfter: staleDelay}, err
		}
		c.ledger.forget(snap.Key)
		c.options.Seen.Forget(snap.Key)
		c.pace.Forget(snap.Key)
		c.rests.forget(snap.Key)
	} else {
		c.pace.Passed(snap.Key, len(snap.nodes), snap.Now)
	}
	err = c.carryOut(ctx, p)
	return ended(err, reconcile.Result{RequeueAfter: c.again(p)})
}

// settle gives back the slots of a pass that were not used.
func (c *Controller) settle(key types.NamespacedName) {
	if c.ledger.settle(key) {
		c.options.Metrics.SetDeliveries(c.ledger.deliveries())
	}
}

// carryOut does what is planned, and tells what keeps it from nodes.
func (c *Controller) carryOut(ctx context.Context, p *plan) error {
	if err := c.vacate(ctx, p); err != nil {
		return err
	}
	tainted := c.taint(ctx, p)
	if err := c.confirm(ctx, p); err != nil {
		return err
	}
	steps, remaining := []nodeplan.Step{}, 0
	var left []*nodeplan.Node
	for i := range p.plans {
		s := p.plans[i].Step()
		if !s.Idle() {
			steps = append(steps, s)
		}
		if p.Module != nil && s.Remains() {
			remaining++
		}
		if s.Drain.Left {
			left = append(left, s.Node)
		}
	}
	log.FromContext(ctx).V(2).Info("Planned", "nodes", len(p.plans), "steps", len(steps), "remaining", remaining)
	// What refuses a taint stops nothing: the claims are read once more before the order.
	refused := &refusals{}
	for i := range p.plans {
		if pl := &p.plans[i]; pl.Drain.Taint {
			refused.note(pl.Node.Name, tainted)
		}
	}
	err := errors.Join(tainted, c.act(ctx, steps, refused))
	kept := c.webhook(ctx, err)
	if err == nil && remaining == len(left) && p.made == 0 {
		err = c.release(ctx, p.Module, left...)
		kept = c.refusal(ctx, err)
	}
	return errors.Join(err, c.report(ctx, p, refused, kept))
}

// report tells what keeps the Module's image, and orders, from nodes that are still there, and what
// keeps the Module itself from being written (whole; nil: nothing does).
func (c *Controller) report(ctx context.Context, p *plan, refused *refusals, whole *reasons.Problem) error {
	if p.Module == nil {
		return nil
	}
	found := c.ledger.problems(p.Key)
	maps.Copy(found, p.problems())
	maps.Copy(found, refused.by)
	if whole != nil {
		found[v1beta1.AllNodes] = *whole
	}
	return problems.Report(ctx, c.client, p.Module, v1beta1.ProblemDeliveries, found)
}

// letGo releases all that a finalizer of ours keeps, or the CRDs could not go. Nothing is unloaded.
func (c *Controller) letGo(ctx context.Context, snap *snapshot) error {
	var steps []nodeplan.Step
	for i := range snap.nodes {
		if n := &snap.nodes[i]; nodeplan.Finalized(n.Config) {
			steps = append(steps, nodeplan.Step{Plan: &nodeplan.Plan{Key: snap.Key, Node: n}, Free: true})
		}
	}
	err := kube.Each(ctx, c.options.Parallelism, steps, c.perform)
	if err != nil || snap.made > 0 {
		return err
	}
	return c.release(ctx, snap.Module)
}

// release lets a Module go that is being deleted, and tells of the nodes that it leaves.
func (c *Controller) release(ctx context.Context, m *v1beta1.Module, left ...*nodeplan.Node) error {
	if m == nil || m.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(m, v1beta1.ModuleFinalizer) {
		return nil
	}
	if err := kube.RemoveFinalizer(ctx, c.client, m, v1beta1.ModuleFinalizer); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if len(left) > 0 {
		c.options.Recorder.Warn(m, v1beta1.ReasonAbandoned, actionLeave, nodeplan.Leftover(left))
	}
	return nil
}

// again is when the next pass is due without an event; 0 is never.
func (c *Controller) again(p *plan) time.Duration {
	next := c.ledger.nextRetry(p.Key)
	soon := func(d time.Duration) {
		if d > 0 && (next == 0 || next > d) {
			next = d
		}
	}
	soon(p.rollout)
	if p.made > 0 {
		soon(drainDelay)
	}
	for i := range p.plans {
		pl := &p.plans[i]
		soon(pl.Aim.Due)
		soon(pl.Delivery.Due)
		soon(pl.Drain.Due)
		for _, h := range pl.AllHolds() {
			soon(delays[h.By])
		}
	}
	return next
}

// ended turns the end of a pass into a result: what is only outdated is tried again soon.
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
