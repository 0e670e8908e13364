// SPDX-License-Identifier: Apache-2.0

// Package condition says in a condition of each Node whether all kernel modules that belong on it
// are ready: for controllers that keep pods off nodes until then. It runs only with
// --node-condition, because it needs a right that nothing else has.
//
// Reads: Node, Module, NodeModulesConfig. Writes: one condition of Node.status.
package condition

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/placement"
)

// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch

const workers = 8

// Controller keeps the condition of nodes.
type Controller struct {
	client client.Client
	taints placement.UnloadTaints
	gate   *gate.Gate
	now    func() time.Time
}

// New makes the controller. c reads from a cache that shows c's own writes. taints are those that
// ask for an unload. now is the clock of transition times; nil is the time of day.
func New(c client.Client, taints placement.UnloadTaints, closed *gate.Gate, now func() time.Time) *Controller {
	if now == nil {
		now = clock.RealClock{}.Now
	}
	return &Controller{client: c, taints: taints, gate: closed, now: now}
}

// Reconcile makes one node's condition right, with at most one write.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	node := &corev1.Node{}
	if err := c.client.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, kube.UnlessGone("get Node", err)
	}
	var modules v1beta1.ModuleList
	if err := c.client.List(ctx, &modules, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list Modules: %w", err)
	}
	config := &v1beta1.NodeModulesConfig{}
	if err := c.client.Get(ctx, request.NamespacedName, config); apierrors.IsNotFound(err) {
		config = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get NodeModulesConfig: %w", err)
	}
	patch, err := patchOf(node, judge(node, config, modules.Items, c.taints), metav1.NewTime(c.now()))
	if err != nil || patch == nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(2).Info("Patching the condition", "patch", string(patch))
	err = c.client.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, patch), kube.OwnerCondition)
	return reconcile.Result{}, kube.UnlessGone("patch the condition of a Node", err)
}

// SetupWithManager registers the controller and its watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("condition").
		For(&corev1.Node{}, watch.If(nodeChanged)).
		Watches(&v1beta1.NodeModulesConfig{}, &handler.EnqueueRequestForObject{}, watch.If(watch.ConfigChanged)).
		Watches(&v1beta1.Module{}, handler.EnqueueRequestsFromMapFunc(c.selected), watch.If(moduleChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("condition", c))
	if err != nil {
		return fmt.Errorf("set up the condition controller: %w", err)
	}
	return nil
}

// selected are the nodes that a Module selects. Update events map both the old and the new Module.
func (c *Controller) selected(ctx context.Context, object client.Object) []reconcile.Request {
	module, ok := object.(*v1beta1.Module)
	if !ok {
		return nil
	}
	return watch.Requests(ctx, c.client, &corev1.NodeList{}, func(node *corev1.Node) bool { return placement.Selects(module, node) })
}

// nodeChanged lets through what is read of a Node.
func nodeChanged(before, now *corev1.Node) bool {
	return before.UID != now.UID || before.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID || !maps.Equal(before.Labels, now.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints) ||
		!equality.Semantic.DeepEqual(nodemarks.Condition(before), nodemarks.Condition(now))
}

// moduleChanged lets through what decides where a Module belongs.
func moduleChanged(before, now *v1beta1.Module) bool { return watch.Rewritten(before, now) }
