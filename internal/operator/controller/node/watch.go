// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/operator/pace"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const (
	// pluginNodeIndex is the index of pods of device plugins and DRA drivers by node.
	pluginNodeIndex = "drover.dev/plugin-node"

	labelWorkers  = 32
	statusWorkers = 4
)

// Options of both reconcilers.
type Options struct {
	// Makes: images are built and signed in the cluster.
	Makes bool
	// UnloadTaints are those that ask for an unload.
	UnloadTaints placement.UnloadTaints
	// Gate keeps labels as they are while it is closed, and then is the reason why Modules are not
	// Ready.
	Gate *gate.Gate
	// Recorder emits events on Modules.
	Recorder kube.Recorder
	// Metrics shows numbers; nil is for nobody.
	Metrics *metrics.Board
	// Now is the clock of transition times; nil is the time of day.
	Now func() time.Time
	// Seen is since when nodes have what is rolled out, for all controllers that ask whose turn it is;
	// nil: this one asks alone.
	Seen *rollout.Sightings
	// Budget is the controller's of orders.
	Budget *budget.Budget
}

// Controller is both reconcilers.
type Controller struct {
	client  client.Client
	options Options
	refused refusals
}

// New makes the controller. c reads from a cache that shows c's own writes.
func New(c client.Client, o Options) *Controller {
	if o.Now == nil {
		o.Now = clock.RealClock{}.Now
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewBoard()
	}
	if o.Seen == nil {
		o.Seen = &rollout.Sightings{}
	}
	return &Controller{client: c, options: o}
}

// SetupWithManager registers both reconcilers, their watches and an index.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, pluginNodeIndex, pluginNode); err != nil {
		return fmt.Errorf("index device plugin pods: %w", err)
	}
	if err := c.setupLabeler(mgr); err != nil {
		return err
	}
	return c.setupReporter(mgr)
}

// onlyNew is for what is read when something else changes, and must only be noticed when it comes
// late.
var onlyNew = builder.WithPredicates(predicate.Funcs{
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
})

func (c *Controller) setupLabeler(mgr ctrl.Manager) error {
	l := &labeler{client: c.client, gate: c.options.Gate, refused: &c.refused}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, watch.If(labelsConcerned)).
		Watches(&v1beta1.NodeModulesConfig{}, &handler.EnqueueRequestForObject{}, watch.If(watch.ConfigChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPlugin), watch.If(podChanged)).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(l.nodesOfDaemonSet), onlyNew).
		WithOptions(controller.Options{MaxConcurrentReconciles: labelWorkers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("node", l))
	if err != nil {
		return fmt.Errorf("set up the labeler: %w", err)
	}
	return nil
}

func (c *Controller) setupReporter(mgr ctrl.Manager) error {
	r := &reporter{
		Options: c.options, client: c.client, refused: &c.refused, pace: &pace.Pace{First: statusFirst, Most: statusMost, Each: statusNode},
	}
	r.Recorder = r.Recorder.Expecting(reasons.Expected)
	reports := ctrl.NewControllerManagedBy(mgr).
		Named("status").
		For(&v1beta1.Module{}, watch.If(moduleChanged)).
		Watches(&v1beta1.NodeModulesConfig{}, watch.Changes(r.reported), watch.If(reportChanged)).
		Watches(&v1beta1.NodeModulesConfig{}, watch.Changes(r.measured), notBefore).
		Watches(&corev1.Node{}, watch.Changes(r.nodeEvent)).
		Watches(&corev1.Pod{}, r.soon(isPart), watch.If(podChanged)).
		Watches(&appsv1.DaemonSet{}, r.soon(isPart), onlyNew).
		WatchesRawSource(r.changesOfGate()).
		WatchesRawSource(r.changesOfRefusals()).
		WithOptions(controller.Options{MaxConcurrentReconciles: statusWorkers, RateLimiter: kube.Backoff()})
	if r.Makes {
		reports = reports.Watches(&v1alpha1.ModuleImage{}, r.soon(func(client.Object) bool { return true }))
	}
	if err := reports.Complete(kube.Traced("status", r)); err != nil {
		return fmt.Errorf("set up the reporter: %w", err)
	}
	return nil
}

// notBefore drops what was there when the operator started.
var notBefore = builder.WithPredicates(predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }})

// measured shows how long orders take. It queues nothing.
func (r *reporter) measured(_ context.Context, _ watch.Queue, before, now *v1beta1.NodeModulesConfig) {
	if now == nil {
		r.Metrics.Lost(before.Name)
		return
	}
	r.Metrics.Saw(before, now, r.Now())
}

// soon queues the Modules of the old and of the new object.
func (r *reporter) soon(concerned func(client.Object) bool) handler.Funcs {
	return watch.Changes(func(_ context.Context, q watch.Queue, before, now client.Object) {
		for _, object := range []client.Object{before, now} {
			if object != nil && concerned(object) {
				r.later(q, watch.ModuleOf(object))
			}
		}
	})
}

// later queues a Module after a pause in which more may come.
func (r *reporter) later(q watch.Queue, module types.NamespacedName) {
	q.AddAfter(reconcile.Request{NamespacedName: module}, r.pace.Wait(module, r.Now()))
}

// isPart is true for a pod or DaemonSet that was made for a Module.
func isPart(object client.Object) bool { return isPlugin(object) || delivery.IsCarrier(object) }

// reported queues the Modules whose part of a NodeModulesConfig changed.
func (r *reporter) reported(_ context.Context, q watch.Queue, before, now *v1beta1.NodeModulesConfig) {
	for key := range facts.Changed(before, now) {
		r.later(q, key)
	}
}

// nodeEvent queues the Modules that select a node, and those that may wait for it to let them go;
// for a change of labels alone, most of which the labeler made, only those that it concerns.
func (r *reporter) nodeEvent(ctx context.Context, q watch.Queue, before, now *corev1.Node) {
	concerned := func(m *v1beta1.Module) bool {
		return leaving(m) || before != nil && placement.Selects(m, before) || now != nil && placement.Selects(m, now)
	}
	if before != nil && now != nil && !watch.NodeChanged(before, now) {
		if maps.Equal(before.Labels, now.Labels) {
			return
		}
		concerned = func(m *v1beta1.Module) bool { return labelsConcern(m, before, now) }
	}
	for _, request := range watch.Requests(ctx, r.client, &v1beta1.ModuleList{}, concerned) {
		r.later(q, request.NamespacedName)
	}
}

// labelsConcern reports whether the labels of a node make a difference to a Module: whether it
// selects the node, and the version that the node shows.
func labelsConcern(m *v1beta1.Module, before, now *corev1.Node) bool {
	version := v1beta1.VersionWorkerLabel(m.Namespace, m.Name)
	return placement.Selects(m, before) != placement.Selects(m, now) || placement.Eligible(m, before) != placement.Eligible(m, now) ||
		before.Labels[version] != now.Labels[version]
}

// changesOfGate feeds the reporter with every Module when the gate opens or closes.
func (r *reporter) changesOfGate() source.Source {
	return source.Func(func(ctx context.Context, q watch.Queue) error {
		r.Gate.Watch(func() {
			go func() { // the gate waits for nobody
				for _, request := range watch.Requests[*v1beta1.Module](ctx, r.client, &v1beta1.ModuleList{}, nil) {
					q.Add(request)
				}
			}()
		})
		return nil
	})
}

// labelsConcerned lets through what the labeler reads of a Node.
func labelsConcerned(before, now *corev1.Node) bool {
	return before.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID ||
		!same(before.Labels, now.Labels, func(label string) bool { return nodemarks.Kept(label) || nodemarks.Drives(label) })
}

// reportChanged lets through what the reporter reads of a NodeModulesConfig: also what the node
// holds, which is all that changes when an image that was built again brings the same build.
func reportChanged(before, now *v1beta1.NodeModulesConfig) bool {
	return watch.ConfigChanged(before, now) || !equality.Semantic.DeepEqual(before.Status.Artifacts, now.Status.Artifacts)
}

func podChanged(before, now *corev1.Pod) bool {
	return before.UID != now.UID || before.Spec.NodeName != now.Spec.NodeName || podReady(before) != podReady(now) ||
		delivery.IsCarrier(now) && !equality.Semantic.DeepEqual(delivery.ProblemOf(before), delivery.ProblemOf(now))
}

// moduleChanged lets through what people wrote, and what other controllers found. The reporter's
// own writes are neither.
func moduleChanged(before, now *v1beta1.Module) bool {
	return watch.Rewritten(before, now) || !placement.SameWishes(now, before) ||
		!equality.Semantic.DeepEqual(now.Status.Problems, before.Status.Problems)
}
