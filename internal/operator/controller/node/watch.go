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
	"k8s.io/client-go/util/workqueue"
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
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
)

const (
	// rolePlugin and roleDRA are the values of the role label on pods of device plugins and DRA
	// drivers.
	rolePlugin = "device-plugin"
	roleDRA    = "dra"
	// pluginNodeIndex is the index of such pods by node.
	pluginNodeIndex = "drover.dev/plugin-node"
	// settle is how long a Module's status waits for more changes: a burst on N nodes costs a handful
	// of writes.
	settle = time.Second

	labelWorkers  = 32
	statusWorkers = 4
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Options of both reconcilers.
type Options struct {
	// Makes: images are built and signed in the cluster.
	Makes bool
	// Gate keeps labels as they are while it is closed, and then is the reason why Modules are not
	// Ready.
	Gate *gate.Gate
	// Recorder emits events on Modules.
	Recorder kube.Recorder
	// Metrics shows numbers; nil is for nobody.
	Metrics *metrics.Board
	// Now is the clock of transition times; nil is the time of day.
	Now func() time.Time
}

// Controller is both reconcilers.
type Controller struct {
	client  client.Client
	options Options
}

// New makes the controller. c reads from a cache that shows c's own writes.
func New(c client.Client, o Options) *Controller {
	if o.Now == nil {
		o.Now = clock.RealClock{}.Now
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewBoard()
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
	l := &labeler{client: c.client, gate: c.options.Gate}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: labelsConcerned})).
		Watches(&v1beta1.NodeModulesConfig{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.Funcs{UpdateFunc: configChanged})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPlugin),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: podChanged})).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(l.nodesOfDaemonSet), onlyNew).
		WithOptions(controller.Options{MaxConcurrentReconciles: labelWorkers}).
		Complete(l)
	if err != nil {
		return fmt.Errorf("set up the labeler: %w", err)
	}
	return nil
}

func (c *Controller) setupReporter(mgr ctrl.Manager) error {
	o := c.options
	r := &reporter{
		client: c.client, makes: o.Makes, recorder: o.Recorder.Expecting(reasons.Expected), metrics: o.Metrics, now: o.Now, gate: o.Gate,
	}
	reports := ctrl.NewControllerManagedBy(mgr).
		Named("status").
		For(&v1beta1.Module{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: moduleChanged})).
		Watches(&v1beta1.NodeModulesConfig{}, reported(),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: reportChanged})).
		Watches(&v1beta1.NodeModulesConfig{}, measured(o.Metrics, o.Now)).
		Watches(&corev1.Node{}, r.nodeEvents()).
		Watches(&corev1.Pod{}, soon(moduleOfPart), builder.WithPredicates(predicate.Funcs{UpdateFunc: podChanged})).
		Watches(&appsv1.DaemonSet{}, soon(moduleOfPart), onlyNew).
		WatchesRawSource(r.changesOfGate()).
		WithOptions(controller.Options{MaxConcurrentReconciles: statusWorkers})
	if o.Makes {
		reports = reports.Watches(&v1alpha1.ModuleImage{}, soon(moduleOfImage))
	}
	if err := reports.Complete(r); err != nil {
		return fmt.Errorf("set up the reporter: %w", err)
	}
	return nil
}

// measured shows how long orders take. It queues nothing.
func measured(board *metrics.Board, now func() time.Time) handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) {
			if config, ok := e.Object.(*v1beta1.NodeModulesConfig); ok && !e.IsInInitialList {
				board.Saw(nil, config, now())
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) {
			if before, after, ok := pair[*v1beta1.NodeModulesConfig](e); ok {
				board.Saw(before, after, now())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { board.Lost(e.Object.GetName()) },
	}
}

// soon queues what modules finds in the old and in the new object, after a pause in which more may
// come.
func soon(modules func(context.Context, client.Object) []types.NamespacedName) handler.Funcs {
	add := func(ctx context.Context, q queue, object client.Object) {
		for _, key := range modules(ctx, object) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			add(ctx, q, e.ObjectOld)
			add(ctx, q, e.ObjectNew)
		},
	}
}

// reported queues the Modules whose part of a NodeModulesConfig changed.
func reported() handler.Funcs {
	add := func(q queue, before, now client.Object) {
		was, _ := before.(*v1beta1.NodeModulesConfig)
		is, _ := now.(*v1beta1.NodeModulesConfig)
		for key := range facts.Changed(was, is) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object, nil) },
	}
}

// nodeEvents queues the Modules that select a node, and those that may wait for it to let them go;
// for a change of labels alone, most of which the labeler made, only those that select the node
// before or after and not both times, or whose version it shows.
func (r *reporter) nodeEvents() handler.Funcs {
	add := func(ctx context.Context, q queue, concerned func(*v1beta1.Module) bool) {
		for _, key := range r.modules(ctx, concerned) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, settle)
		}
	}
	at := func(ctx context.Context, q queue, object client.Object) {
		if node, ok := object.(*corev1.Node); ok {
			add(ctx, q, func(m *v1beta1.Module) bool { return leaving(m) || placement.Selects(m, node) })
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { at(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { at(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			switch before, now, ok := pair[*corev1.Node](e); {
			case !ok:
			case nodeChanged(before, now):
				at(ctx, q, before)
				at(ctx, q, now)
			case !maps.Equal(before.Labels, now.Labels):
				add(ctx, q, func(m *v1beta1.Module) bool { return labelsConcern(m, before, now) })
			}
		},
	}
}

// labelsConcern reports whether the labels of a node make a difference to a Module.
func labelsConcern(m *v1beta1.Module, before, now *corev1.Node) bool {
	version := v1beta1.VersionWorkerLabel(m.Namespace, m.Name)
	return placement.Selects(m, before) != placement.Selects(m, now) || placement.Eligible(m, before) != placement.Eligible(m, now) ||
		before.Labels[version] != now.Labels[version]
}

func (r *reporter) modules(ctx context.Context, concerned func(*v1beta1.Module) bool) []types.NamespacedName {
	var modules v1beta1.ModuleList
	if err := r.client.List(ctx, &modules, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		// The cache ends with the process only: there is nothing left to queue.
		return nil
	}
	var keys []types.NamespacedName
	for i := range modules.Items {
		if m := &modules.Items[i]; concerned(m) {
			keys = append(keys, client.ObjectKeyFromObject(m))
		}
	}
	return keys
}

// moduleOfPart is the Module of a pod or DaemonSet.
func moduleOfPart(_ context.Context, object client.Object) []types.NamespacedName {
	if isPlugin(object) || isCarrier(object) {
		return []types.NamespacedName{moduleOf(object)}
	}
	return nil
}

// moduleOfImage is the Module whose image it is.
func moduleOfImage(_ context.Context, image client.Object) []types.NamespacedName {
	return []types.NamespacedName{{Namespace: image.GetNamespace(), Name: image.GetLabels()[v1beta1.ModuleNameLabel]}}
}

// changesOfGate feeds the reporter with every Module when the gate opens or closes.
func (r *reporter) changesOfGate() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		r.gate.Watch(func() {
			go func() { // the gate waits for nobody
				for _, key := range r.modules(ctx, func(*v1beta1.Module) bool { return true }) {
					q.Add(reconcile.Request{NamespacedName: key})
				}
			}()
		})
		return nil
	})
}

// labelsConcerned lets through what the labeler reads of a Node.
func labelsConcerned(e event.UpdateEvent) bool {
	before, now, ok := pair[*corev1.Node](e)
	return ok && (before.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID || !sameKept(before.Labels, now.Labels) ||
		!sameVersions(before.Labels, now.Labels))
}

// nodeChanged reports whether what the reporter reads of a Node changed, its labels aside.
func nodeChanged(before, now *corev1.Node) bool {
	return before.UID != now.UID || !equality.Semantic.DeepEqual(before.Status.NodeInfo, now.Status.NodeInfo) ||
		placement.Ready(before) != placement.Ready(now) ||
		!placement.SameWishes(before, now) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints)
}

func configChanged(e event.UpdateEvent) bool {
	before, now, ok := pair[*v1beta1.NodeModulesConfig](e)
	return ok && (before.UID != now.UID ||
		!equality.Semantic.DeepEqual(before.Spec.Modules, now.Spec.Modules) ||
		!equality.Semantic.DeepEqual(before.Status.Modules, now.Status.Modules) ||
		!equality.Semantic.DeepEqual(before.Status.Attempts, now.Status.Attempts))
}

// reportChanged lets through what the reporter reads of a NodeModulesConfig: also what the node
// holds, which is all that changes when an image that was built again brings the same build.
func reportChanged(e event.UpdateEvent) bool {
	before, now, ok := pair[*v1beta1.NodeModulesConfig](e)
	return ok && (configChanged(e) || !equality.Semantic.DeepEqual(before.Status.Artifacts, now.Status.Artifacts))
}

func podChanged(e event.UpdateEvent) bool {
	before, now, ok := pair[*corev1.Pod](e)
	return ok && (before.UID != now.UID || before.Spec.NodeName != now.Spec.NodeName || podReady(before) != podReady(now) ||
		isCarrier(now) && !equality.Semantic.DeepEqual(delivery.ProblemOf(before), delivery.ProblemOf(now)))
}

// moduleChanged lets through what people wrote, and what other controllers found. The reporter's
// own writes are neither.
func moduleChanged(e event.UpdateEvent) bool {
	before, now, ok := pair[*v1beta1.Module](e)
	return ok && (now.Generation != before.Generation || now.UID != before.UID ||
		(now.DeletionTimestamp == nil) != (before.DeletionTimestamp == nil) ||
		!placement.SameWishes(now, before) ||
		!equality.Semantic.DeepEqual(now.Status.Problems, before.Status.Problems))
}

func pair[T client.Object](e event.UpdateEvent) (before, now T, ok bool) {
	before, okBefore := e.ObjectOld.(T)
	now, okNow := e.ObjectNew.(T)
	return before, now, okBefore && okNow
}
