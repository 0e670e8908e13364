// SPDX-License-Identifier: Apache-2.0

// Package claims reports which kernels a spoke's nodes run, so that its hub makes images for them:
// in ClusterClaims if Open Cluster Management is installed, and in a ConfigMap for hubs that read
// it.
//
// Reads: Nodes. Writes: the ConfigMap and two ClusterClaims, once for nodes that come together.
package claims

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch,namespace=drover-system
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=clusterclaims,verbs=get;list;watch;create;patch

const (
	// owner is the field owner of what is written.
	owner client.FieldOwner = "drover-claims"
	// together is how long to wait for more nodes: each change makes a hub look at all its clusters.
	together = 10 * time.Second
	// again is how often to check what was written, and whether Open Cluster Management is installed.
	again = time.Minute
)

// Controller writes the claims.
type Controller struct {
	client    client.Client
	live      client.Reader
	namespace string
}

// New makes the controller. c reads Nodes from a cache; live reads from the API server.
func New(c client.Client, live client.Reader, namespace string) *Controller {
	return &Controller{client: c, live: live, namespace: namespace}
}

// SetupWithManager registers the controller and its watch.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	add := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: direct.Platforms}}, together)
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("claims").
		Watches(&corev1.Node{}, handler.Funcs{
			CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				add(q)
			},
			DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				add(q)
			},
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				before, okBefore := e.ObjectOld.(*corev1.Node)
				now, okNow := e.ObjectNew.(*corev1.Node)
				if !okBefore || !okNow {
					return
				}
				was, _ := kernel.PlatformOf(&before.Status.NodeInfo)
				if is, _ := kernel.PlatformOf(&now.Status.NodeInfo); is != was {
					add(q)
				}
			},
		}).
		WithOptions(controller.Options{RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("claims", reconcile.Func(c.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up the controller of claims: %w", err)
	}
	return nil
}

// Reconcile reports what all nodes run.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list Nodes: %w", err)
	}
	number := map[hub.Platform]int{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !placement.AgentExpected(node) {
			continue
		}
		p, err := kernel.PlatformOf(&node.Status.NodeInfo)
		switch {
		case err == nil:
			number[p]++
		case p.Kernel != "": // reported, and the hub would refuse it
			log.FromContext(ctx).Info("A node is left out of the claims: what it reports is no kernel", "node", node.Name, "why", err.Error())
		}
	}
	said, left := hub.ClaimsOf(number)
	if left > 0 {
		log.FromContext(ctx).Info("A claim has no room for all kernels: the hub makes no images for those of the fewest nodes", "left", left,
			"of", len(number))
	}
	if err := c.tell(ctx, said); err != nil {
		return reconcile.Result{}, err
	}
	kind := clusterv1alpha1.SchemeGroupVersion.WithKind("ClusterClaim")
	switch _, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); {
	case meta.IsNoMatchError(err):
		return reconcile.Result{RequeueAfter: again}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("look for ClusterClaims: %w", err)
	}
	return reconcile.Result{RequeueAfter: again}, c.claim(ctx, said)
}

// tell writes the ConfigMap.
func (c *Controller) tell(ctx context.Context, said map[string]string) error {
	have := &corev1.ConfigMap{}
	err := c.live.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: direct.Platforms}, have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ConfigMap %s: %w", direct.Platforms, err)
	}
	if err == nil && maps.Equal(have.Data, said) {
		return nil
	}
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: direct.Platforms}, Data: said}
	wish, err := kube.Wish(want, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", direct.Platforms, err)
	}
	return kube.Apply(ctx, c.client, owner, client.ApplyConfigurationFromUnstructured(wish))
}

// claim writes the ClusterClaims that have a value: an empty one is not valid.
func (c *Controller) claim(ctx context.Context, said map[string]string) error {
	for name, value := range said {
		have := &clusterv1alpha1.ClusterClaim{}
		err := c.live.Get(ctx, types.NamespacedName{Name: name}, have)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get ClusterClaim %s: %w", name, err)
		}
		if value == "" || err == nil && have.Spec.Value == value {
			continue
		}
		want := &clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterClaimSpec{Value: value}}
		wish, err := kube.Wish(want, clusterv1alpha1.SchemeGroupVersion.WithKind("ClusterClaim"))
		if err != nil {
			return fmt.Errorf("ClusterClaim %s: %w", name, err)
		}
		if err := kube.Apply(ctx, c.client, owner, client.ApplyConfigurationFromUnstructured(wish)); err != nil {
			return fmt.Errorf("ClusterClaim %s: %w", name, err)
		}
	}
	return nil
}
