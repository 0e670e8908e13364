// SPDX-License-Identifier: Apache-2.0

// Package startup takes startup taints off nodes whose drivers work.
//
// Reads: Node, Module, NodeModulesConfig. Writes: Node.spec.taints, of which it only takes away.
package startup

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/status"
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
		// The taints changed meanwhile; that event comes back here.
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
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("startup", c))
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

// finished are a node's startup taints whose Modules are all ready there, in order. A taint that no
// Module of the node names is not ours.
func finished(node *corev1.Node, config *v1beta1.NodeModulesConfig, modules []v1beta1.Module) []string {
	waits := map[string]bool{}
	for i := range modules {
		m := &modules[i]
		key := m.Spec.StartupTaint
		if key == "" || m.DeletionTimestamp != nil || !hasTaint(node, key) {
			continue
		}
		entry := status.EntryOf(config, m.Namespace, m.Name)
		if placement.Wanted(m, node, entry.Pending()) {
			waits[key] = waits[key] || !ready(m, node, entry)
		}
	}
	var done []string
	for key, wait := range waits {
		if !wait {
			done = append(done, key)
		}
	}
	slices.Sort(done)
	return done
}

// ready is true where the kernel module and, if there is one, the plugin are ready. The node
// controller keeps the plugins' labels.
func ready(m *v1beta1.Module, node *corev1.Node, entry status.Entry) bool {
	has := func(label string) bool {
		_, ok := node.Labels[label]
		return ok
	}
	return (m.Spec.ModuleLoader == nil || entry.Usable(node)) &&
		(m.Spec.DevicePlugin == nil || has(v1beta1.DevicePluginReadyLabel(m.Namespace, m.Name))) &&
		(m.Spec.DRA == nil || has(v1beta1.DRAReadyLabel(m.Namespace, m.Name)))
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// withoutTaints is a JSON patch that removes the taints with these keys, whatever their effect.
// Each removal first tests that the same node still has this very taint there. nil: there is none.
func withoutTaints(node *corev1.Node, keys []string) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	patch := []operation{{Op: "test", Path: "/metadata/uid", Value: node.UID}}
	for i, taint := range slices.Backward(node.Spec.Taints) {
		if path := fmt.Sprintf("/spec/taints/%d", i); slices.Contains(keys, taint.Key) {
			patch = append(patch, operation{Op: "test", Path: path, Value: taint}, operation{Op: "remove", Path: path})
		}
	}
	if len(patch) == 1 {
		return nil, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of taints: %w", err)
	}
	return text, nil
}
