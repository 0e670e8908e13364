// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/policies"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
)

const (
	workers = 4
	// conflictDelay is how often DeviceClasses of others with a wanted name are looked at.
	conflictDelay = 30 * time.Second
	// claimDelay is how often claims are looked at that keep a driver.
	claimDelay = 5 * time.Second

	unsupported = "spec.dra: this cluster's API server did not serve resource.k8s.io/v1 when the operator started; " +
		"DRA drivers need Kubernetes 1.34 or newer"
)

// Options of the controller.
type Options struct {
	// AgentImage holds the program that waits for the kernel module.
	AgentImage string
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	DRA  bool   // the API server serves what DRA drivers need
	Role string // the ClusterRole to bind Modules' own ServiceAccounts to; empty: none
}

// New makes the controller. c's cache shows c's own writes; live reads from the API server.
func New(c client.Client, live client.Reader, o Options) *Controller {
	return &Controller{client: c, live: live, options: o}
}

// SetupWithManager registers the controller, what restarts and releases pods, and their watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	own := watch.If(specChanged)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("plugin").
		For(&v1beta1.Module{}, own).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(watch.Module), watch.If(setChanged)).
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(watch.Module), own).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()})
	b = policies.Modules(b, c.client)
	if c.options.DRA {
		b = b.Watches(&resourcev1.DeviceClass{}, handler.EnqueueRequestsFromMapFunc(moduleOfClass))
	}
	if err := b.Complete(kube.Traced("plugin", c)); err != nil {
		return fmt.Errorf("set up the plugin controller: %w", err)
	}
	r := &restarter{client: c.client, gate: c.options.Gate, done: map[string]map[types.NamespacedName]metav1.Time{}}
	if err := r.setup(mgr); err != nil {
		return err
	}
	return (&releaser{client: c.client, gate: c.options.Gate}).setup(mgr)
}

func moduleOfClass(_ context.Context, class client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: class.GetLabels()[v1beta1.ModuleNamespaceLabel], Name: class.GetLabels()[v1beta1.ModuleNameLabel],
	}}}
}

// specChanged lets through all but changes of a mere status.
func specChanged(before, now client.Object) bool {
	return watch.Rewritten(before, now) || placement.Paused(before) != placement.Paused(now) ||
		!maps.Equal(before.GetLabels(), now.GetLabels()) ||
		before.GetAnnotations()[kube.ModuleAnnotation] != now.GetAnnotations()[kube.ModuleAnnotation] ||
		len(before.GetOwnerReferences()) != len(now.GetOwnerReferences())
}

// problemOf is what an error means to the Module's author; nil: it passes by itself.
func problemOf(what string, err error) *reasons.Problem {
	var foreign foreignError
	if !errors.As(err, &foreign) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
		return nil
	}
	return &reasons.Problem{Reason: v1beta1.ReasonDevicesPending, Message: fmt.Sprintf("Drover cannot create or update %s: %s", what, err)}
}
