// SPDX-License-Identifier: Apache-2.0

// Package startup takes startup taints off nodes whose drivers work.
//
// Reads: Node, Module, NodeModulesConfig. Writes: Node.spec.taints, of which it only takes away,
// and only those that Modules may name; in a Module's status, that it may not name its own.
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

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/policies"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/status"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules;nodemodulesconfigs,verbs=get;list;watch

const workers = 8

// Controller takes startup taints off nodes.
type Controller struct {
	client client.Client
	taints modulepolicy.Taints
	unload placement.UnloadTaints
	gate   *gate.Gate
}

// New makes the controller. c reads from a cache; taints are those that an administrator lists, and
// unload those that ask for an unload.
func New(c client.Client, taints modulepolicy.Taints, unload placement.UnloadTaints, closed *gate.Gate) *Controller {
	return &Controller{client: c, taints: taints, unload: unload, gate: closed}
}

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
	named, err := c.named(ctx, node, modules.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	done := finished(node, config, named, c.unload)
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
		Watches(&v1alpha1.ModulePolicy{}, handler.EnqueueRequestsFromMapFunc(c.anyTainted)).
		WatchesMetadata(policies.AnyNamespace(), handler.EnqueueRequestsFromMapFunc(c.anyTainted), watch.If(policies.Relabelled)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("startup", c))
	if err != nil {
		return fmt.Errorf("set up the startup controller: %w", err)
	}
	return c.setupTeller(mgr)
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

// anyTainted are the nodes with a taint, for a policy or a namespace's labels that change.
func (c *Controller) anyTainted(ctx context.Context, _ client.Object) []reconcile.Request {
	return watch.Requests(ctx, c.client, &corev1.NodeList{}, func(node *corev1.Node) bool { return len(node.Spec.Taints) > 0 })
}

// nodeChanged lets through what is read of a Node: its labels show which plugins are ready.
func nodeChanged(before, now *corev1.Node) bool {
	return len(now.Spec.Taints) > 0 && (before.UID != now.UID || before.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints) || !maps.Equal(before.Labels, now.Labels))
}

// named are the Modules that name a taint of the node, and may.
func (c *Controller) named(ctx context.Context, node *corev1.Node, modules []v1beta1.Module) ([]*v1beta1.Module, error) {
	var named []*v1beta1.Module
	for i := range modules {
		m := &modules[i]
		if m.Spec.StartupTaint == "" || m.DeletionTimestamp != nil || !hasTaint(node, m.Spec.StartupTaint) {
			continue
		}
		denied, err := c.denied(ctx, m)
		if err != nil {
			return nil, err
		}
		if denied == nil {
			named = append(named, m)
		}
	}
	return named, nil
}

// denied is why a Module may not name its startup taint, or nil. Such a Module does not count: it
// neither takes the taint off nor keeps it on.
func (c *Controller) denied(ctx context.Context, m *v1beta1.Module) (*reasons.Problem, error) {
	if p := c.taints.Denied(m); p != nil || m.Spec.StartupTaint == "" {
		return p, nil
	}
	set, namespace, err := policies.Read(ctx, c.client, nil, m.Namespace)
	if err != nil {
		return nil, err
	}
	return set.DeniedTaint(v1alpha1.PolicyEnforce, m, namespace), nil
}

// finished are a node's startup taints whose Modules, of those that may name one, are all ready
// there, in order.
func finished(node *corev1.Node, config *v1beta1.NodeModulesConfig, named []*v1beta1.Module, unload placement.UnloadTaints) []string {
	waits := map[string]bool{}
	for _, m := range named {
		key := m.Spec.StartupTaint
		entry := status.EntryOf(config, m.Namespace, m.Name)
		if unload.Wanted(m, node, entry.Pending()) {
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
