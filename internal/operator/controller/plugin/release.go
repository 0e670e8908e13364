// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kube"
)

// The admission policy drover-operator-pods narrows the right to patch pods to what this needs.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch

// releaser takes KMM's finalizer off the plugin pods that are being deleted. KMM holds each back
// until it has taken off a label; without KMM they would stay for ever, and with them what waits
// for their end: upgrades, and the deletion of Modules.
type releaser struct {
	client client.Client
	gate   *gate.Gate
}

// Reconcile looks at one pod.
func (r *releaser) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil // KMM itself may be at work
	}
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, kube.UnlessGone("get a plugin pod", err)
	}
	if !heldByKMM(pod) {
		return reconcile.Result{}, nil
	}
	if err := kube.RemoveFinalizer(ctx, r.client, pod, v1beta1.PluginPodFinalizer); err != nil {
		return reconcile.Result{}, fmt.Errorf("release a plugin pod: %w", err)
	}
	log.FromContext(ctx).Info("Released a plugin pod that KMM has made", "pod", request.NamespacedName)
	return reconcile.Result{}, nil
}

// heldByKMM is true for a plugin pod that only KMM's finalizer may keep from its end.
func heldByKMM(object client.Object) bool {
	role := object.GetLabels()[v1beta1.RoleLabel]
	return object.GetDeletionTimestamp() != nil && (role == v1beta1.RoleDevicePlugin || role == v1beta1.RoleDRA) &&
		slices.Contains(object.GetFinalizers(), v1beta1.PluginPodFinalizer)
}

func (r *releaser) setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("plugin-release").
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}).
		WithEventFilter(predicate.NewPredicateFuncs(heldByKMM)).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("plugin-release", r))
	if err != nil {
		return fmt.Errorf("set up the release of plugin pods: %w", err)
	}
	return nil
}
