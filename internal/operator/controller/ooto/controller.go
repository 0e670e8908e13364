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
	"slices"
	"time"

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
	kmmac "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
	ootoac "github.com/drover-project/drover/api/ooto/v1alpha1/applyconfiguration/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
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
	module      *v1beta1.Module                 // the KMM Module of that name, whatever its owner, or nil
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
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("ooto", c))
	if err != nil {
		return fmt.Errorf("set up the controller of Modules of %s: %w", v1alpha1.GroupVersion.Group, err)
	}
	return nil
}

// retryAfter is when a problem is looked at again that no watch shows.
const retryAfter = time.Minute

// act writes what differs, and returns the KMM Module once it is what is asked for. New Dockerfiles
// come first; unused ones go a pass later, when everybody has seen the change.
func (c *Controller) act(ctx context.Context, want *translation, have *world) (*v1beta1.Module, *reasons.Problem, error) {
	switch {
	case have.module == nil:
	case !have.ours:
		return nil, taken("Module", have.module.Name), nil
	case have.module.DeletionTimestamp != nil:
		return nil, &reasons.Problem{Reason: v1alpha1.ReasonTerminating, Message: fmt.Sprintf(
			"The Module %s of %s is being deleted; Drover creates it again afterwards", have.module.Name, v1beta1.GroupVersion.Group)}, nil
	}
	for _, dockerfile := range want.dockerfiles {
		if p, err := c.create(ctx, dockerfile, have); p != nil || err != nil {
			return nil, p, err
		}
	}
	settled, err := settled(want.module, have.module)
	if err != nil {
		return nil, nil, err
	}
	if !settled {
		p, err := c.apply(ctx, want.module, have.module)
		return nil, p, err
	}
	keep := func(o *metav1.PartialObjectMetadata) bool {
		return slices.ContainsFunc(want.dockerfiles, func(d *corev1.ConfigMap) bool { return d.Name == o.Name })
	}
	if err := kube.Prune(ctx, c.client, have.dockerfiles, keep); err != nil {
		return nil, nil, fmt.Errorf("delete Dockerfiles: %w", err)
	}
	return have.module, nil, nil
}

func taken(kind, name string) *reasons.Problem {
	return &reasons.Problem{Reason: v1alpha1.ReasonNameTaken,
		Message: fmt.Sprintf("The %s %s exists and does not belong to this Module: delete or rename one of them", kind, name)}
}

// create makes a missing ConfigMap. It is immutable, and its name follows from its content.
func (c *Controller) create(ctx context.Context, dockerfile *corev1.ConfigMap, have *world) (*reasons.Problem, error) {
	if slices.ContainsFunc(have.dockerfiles, func(o *metav1.PartialObjectMetadata) bool { return o.Name == dockerfile.Name }) {
		return nil, nil
	}
	err := c.client.Create(ctx, dockerfile.DeepCopy(), kube.OwnerOoto)
	if !apierrors.IsAlreadyExists(err) {
		return refused(err, "ConfigMap "+dockerfile.Name)
	}
	// The cache has not shown it yet, or it is not ours.
	other := &metav1.PartialObjectMetadata{}
	other.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(dockerfile), other); err != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", dockerfile.Name, err)
	}
	if controller := metav1.GetControllerOf(other); controller == nil || controller.UID != dockerfile.OwnerReferences[0].UID {
		return taken("ConfigMap", dockerfile.Name), nil
	}
	return nil, nil
}

// apply writes the KMM Module; a new one without force, so that one made meanwhile stays.
func (c *Controller) apply(ctx context.Context, want, have *v1beta1.Module) (*reasons.Problem, error) {
	config, err := kube.Convert[kmmac.ModuleApplyConfiguration](want)
	if err != nil {
		return nil, err
	}
	config.Status = nil
	options := []client.ApplyOption{kube.OwnerOoto}
	if have != nil {
		config.WithUID(have.UID)
		options = append(options, client.ForceOwnership)
	}
	return refused(c.client.Apply(ctx, config, options...), "Module "+want.Name+" of "+v1beta1.GroupVersion.Group)
}

// refused turns an API server's refusal, which it would repeat, into a problem.
func refused(err error, what string) (*reasons.Problem, error) {
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		return &reasons.Problem{Reason: v1alpha1.ReasonRefused, Message: fmt.Sprintf("The API server refuses the %s: %v", what, err)}, nil
	}
	return nil, fmt.Errorf("write %s: %w", what, err)
}

// settled is true when the Module has all that is asked for and was last written for the same wish.
// Other fields are the API server's or other writers', such as rollout.
func settled(want, have *v1beta1.Module) (bool, error) {
	if have == nil {
		return false, nil
	}
	wish, err := kube.Wish(want, v1beta1.GroupVersion.WithKind("Module"))
	if err != nil {
		return false, err
	}
	return kube.Settled(wish, have)
}
