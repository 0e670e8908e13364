// SPDX-License-Identifier: Apache-2.0

// Package startup takes startup taints off nodes whose drivers work.
//
// Reads: Node, Module, NodeModulesConfig. Writes: Node.spec.taints, of which it only takes away.
package startup

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules;nodemodulesconfigs,verbs=get;list;watch

const workers = 8

// Controller takes startup taints off nodes.
type Controller struct {
	client client.Client
	gate   *gate.Gate
}

// New makes the controller. c reads from a cache.
func New(c client.Client, closed *gate.Gate) *Controller { return &Controller{client: c, gate: closed} }

// Reconcile takes finished startup taints off one node, with at most one write.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	node := &corev1.Node{}
	if err := c.client.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, kube.UnlessGone("get Node", err)
	}
	if len(node.Spec.Taints) == 0 {
		return reconcile.Result{}, nil
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
	done := finished(node, config, modules.Items)
	patch, err := withoutTaints(node, done)
	if err != nil || patch == nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("Taking off startup taints", "node", node.Name, "keys", done)
	err = c.client.Patch(ctx, node, client.RawPatch(types.JSONPatchType, patch), kube.OwnerStartup)
	if apierrors.IsInvalid(err) {
		// Somebody changed the taints meanwhile; that event comes back here.
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, kube.UnlessGone("take off startup taints", err)
}

// SetupWithManager registers the controller and its watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("startup").
		For(&corev1.Node{}, watch.If(nodeChanged)).
		Watches(&v1beta1.NodeModulesConfig{}, &handler.EnqueueRequestForObject{}, watch.If(watch.ConfigChanged)).
		Watches(&v1beta1.Module{}, handler.EnqueueRequestsFromMapFunc(c.taintedNodes),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("set up the startup controller: %w", err)
	}
	return nil
}

// taintedNodes are the nodes with a Module's startup taint. Update events map both the old and the
// new Module.
func (c *Controller) taintedNodes(ctx context.Context, object client.Object) []reconcile.Request {
	module, ok := object.(*v1beta1.Module)
	if !ok || module.Spec.StartupTaint == "" {
		return nil
	}
	return watch.Requests(ctx, c.client, &corev1.NodeList{}, func(node *corev1.Node) bool {
		return hasTaint(node, module.Spec.StartupTaint)
	})
}

// nodeChanged lets through what is read of a Node: its labels show which plugins are ready.
func nodeChanged(before, now *corev1.Node) bool {
	return len(now.Spec.Taints) > 0 && (before.UID != now.UID || before.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints) || !maps.Equal(before.Labels, now.Labels))
}
