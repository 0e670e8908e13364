// SPDX-License-Identifier: Apache-2.0

// Package ooto serves Modules of ooto.sigs.k8s.io: each becomes a Module of kmm.sigs.x-k8s.io that
// it owns, which does the work, and whose status it shows.
//
// Reads: its Modules, KMM Modules, the names of ConfigMaps. Writes: the status of its Modules, and
// KMM Modules and ConfigMaps with Dockerfiles that it owns. Owner references do the deletion.
package ooto

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
	ootoac "github.com/drover-project/drover/api/ooto/v1alpha1/applyconfiguration/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups=ooto.sigs.k8s.io,resources=modules,verbs=get;list;watch
// +kubebuilder:rbac:groups=ooto.sigs.k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=ooto.sigs.k8s.io,resources=modules/finalizers,verbs=update
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;delete

const workers = 2

// Options of the controller.
type Options struct {
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	// Recorder emits events about conditions that the KMM Module does not have.
	Recorder kube.Recorder
	Clock    clock.PassiveClock // the time of day unless set
}

// Controller translates Modules.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
}

// New makes the controller. c's cache shows c's own writes; live reads from the API server.
func New(c client.Client, live client.Reader, o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Controller{client: c, live: live, options: o}
}

// Reconcile makes the KMM Module what one Module asks for, and reports on it.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	m := &v1alpha1.Module{}
	err := c.client.Get(ctx, request.NamespacedName, m)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get Module: %w", err)
	}
	if err != nil || m.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	have, err := c.observe(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	want, err := translate(m)
	if err != nil {
		return reconcile.Result{}, err
	}
	child, p, err := c.act(ctx, want, have)
	if err != nil {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{}
	if p != nil {
		result.RequeueAfter = retryAfter
	}
	return result, c.report(ctx, m, statusOf(m, child, want.ignored, p, c.options.Clock.Now()))
}

type world struct {
	module      *v1beta1.Module                 // the KMM Module of that name, whoever owns it, or nil
	ours        bool                            // true when the Module owns it
	dockerfiles []*metav1.PartialObjectMetadata // the ConfigMaps that the Module owns
}

func (c *Controller) observe(ctx context.Context, m *v1alpha1.Module) (*world, error) {
	w := &world{module: &v1beta1.Module{}}
	switch err := c.client.Get(ctx, client.ObjectKeyFromObject(m), w.module); {
	case apierrors.IsNotFound(err):
		w.module = nil
	case err != nil:
		return nil, fmt.Errorf("get the KMM Module: %w", err)
	default:
		w.ours = metav1.IsControlledBy(w.module, m)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := c.client.List(ctx, list, client.InNamespace(m.Namespace)); err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], m) {
			w.dockerfiles = append(w.dockerfiles, &list.Items[i])
		}
	}
	return w, nil
}

func (c *Controller) report(ctx context.Context, m *v1alpha1.Module, s *v1alpha1.ModuleStatus) error {
	if equality.Semantic.DeepEqual(&m.Status, s) {
		return nil
	}
	config, err := kube.Convert[ootoac.ModuleStatusApplyConfiguration](s)
	if err != nil {
		return err
	}
	apply := ootoac.Module(m.Name, m.Namespace).WithUID(m.UID).WithStatus(config)
	switch err := kube.ApplyStatus(ctx, c.client, kube.OwnerOoto, apply); {
	case kube.Outdated(err): // it has gone, and another may have come
		return nil
	case err != nil:
		return fmt.Errorf("of Module %s: %w", client.ObjectKeyFromObject(m), err)
	}
	// The first condition, with its events, is the KMM Module's.
	c.options.Recorder.Changed(m, m.Status.Conditions, s.Conditions[1:])
	return nil
}

// SetupWithManager registers the controller and its watches. The KMM Module has the Module's name.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.Module{}, handler.OnlyControllerOwner())
	err := ctrl.NewControllerManagedBy(mgr).
		Named("ooto").
		For(&v1alpha1.Module{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1beta1.Module{}, &handler.EnqueueRequestForObject{}).
		WatchesMetadata(&corev1.ConfigMap{}, owner).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("set up the controller of Modules of %s: %w", v1alpha1.GroupVersion.Group, err)
	}
	return nil
}
