// SPDX-License-Identifier: Apache-2.0

// Package preflight answers PreflightValidations: whether the cluster's Modules are ready for a
// kernel that no node needs to run.
//
// Reads: PreflightValidation, Module, ModuleImage, the architecture of Nodes and, live, the
// ConfigMap that a build names. Writes: its wish for ModuleImages, and the status of
// PreflightValidations. The same code as for nodes decides about mappings and inputs of images, and
// the controller moduleimage runs the Jobs, which hold the pull Secrets. Nodes get no orders.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	droverac "github.com/drover-project/drover/api/drover/v1alpha1/applyconfiguration/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/sources"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=preflightvalidations,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=preflightvalidations/status,verbs=patch
// +kubebuilder:rbac:groups=drover.dev,resources=moduleimages,verbs=get;list;watch;create;patch;delete

// The Jobs that examine images run where no builds are on, too; a changed environment starts them
// again.
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=drover-build-environment,verbs=get;list;watch

// Options of the controller.
type Options struct {
	// BuildahImage builds from Dockerfiles.
	BuildahImage string
	// Examines: the Jobs of ModuleImages run that examine what is in a registry. Makes: those that
	// build and sign run, too.
	Examines, Makes bool
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	// Recorder writes events about conditions that change.
	Recorder kube.Recorder
	// Count takes the number of PreflightValidations; nil: nobody wants it.
	Count func(int)
	// Clock is for times in the status; nil is the time of day.
	Clock clock.PassiveClock
}

// Controller reconciles PreflightValidations.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
}

// New makes the controller. c's cache shows its own writes; live reads from the API server.
func New(c client.Client, live client.Reader, o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Count == nil {
		o.Count = func(int) {}
	}
	return &Controller{client: c, live: live, options: o}
}

// Reconcile asks for the images to examine, and reports the findings.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	if err := c.count(ctx); err != nil {
		return reconcile.Result{}, err
	}
	p := &v1beta2.PreflightValidation{}
	err := c.client.Get(ctx, request.NamespacedName, p)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get PreflightValidation: %w", err)
	}
	gone := err != nil || p.DeletionTimestamp != nil
	all, err := c.images(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if gone {
		return reconcile.Result{}, c.release(ctx, request.Name, all, nil)
	}
	found, err := c.find(ctx, p, all)
	if err != nil {
		return reconcile.Result{}, err
	}
	wants, failed := c.ask(ctx, p, found, all)
	if err := c.release(ctx, p.Name, all, wants); err != nil {
		return reconcile.Result{}, errors.Join(failed, err)
	}
	return reconcile.Result{}, errors.Join(failed, c.report(ctx, p, statusOf(p, found, c.options.Clock.Now())))
}

// ask wants every image that is to be examined, and returns which these are. What the API server
// refuses, by a quota for example, is the finding about that Module; no other one waits for it.
func (c *Controller) ask(
	ctx context.Context, p *v1beta2.PreflightValidation, found []finding, all map[types.NamespacedName]*v1alpha1.ModuleImage,
) (wants map[types.NamespacedName]bool, failed error) {
	wants = map[types.NamespacedName]bool{}
	for i := range found {
		for _, key := range slices.SortedFunc(maps.Keys(found[i].wants), byName) {
			wants[key] = true
			err := c.want(ctx, p, key, found[i].wants[key], all[key])
			if (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && found[i].status != v1beta2.VerificationFailure {
				found[i] = found[i].fails(v1beta1.ReasonCheckFailed, fmt.Sprintf("the API server refuses what asks for the examination: %v", err))
			}
			failed = errors.Join(failed, err)
		}
	}
	return wants, failed
}

func byName(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

func (c *Controller) count(ctx context.Context) error {
	var all v1beta2.PreflightValidationList
	if err := c.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PreflightValidations: %w", err)
	}
	c.options.Count(len(all.Items))
	return nil
}

// images are all of the cluster.
func (c *Controller) images(ctx context.Context) (map[types.NamespacedName]*v1alpha1.ModuleImage, error) {
	var list v1alpha1.ModuleImageList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	all := map[types.NamespacedName]*v1alpha1.ModuleImage{}
	for i := range list.Items {
		all[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return all, nil
}

// find decides about every Module.
func (c *Controller) find(
	ctx context.Context, p *v1beta2.PreflightValidation, images map[types.NamespacedName]*v1alpha1.ModuleImage,
) ([]finding, error) {
	var modules v1beta1.ModuleList
	if err := c.client.List(ctx, &modules, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Modules: %w", err)
	}
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var found []finding
	for i := range modules.Items {
		m := &modules.Items[i]
		if m.DeletionTimestamp != nil || !concerned(p, m) {
			continue
		}
		var named map[string]*corev1.ConfigMap
		if c.options.Makes {
			var err error
			if named, err = sources.Read(ctx, c.live, m.Namespace, pipeline.Sources(m)); err != nil {
				return nil, fmt.Errorf("sources of Module %s/%s: %w", m.Namespace, m.Name, err)
			}
		}
		found = append(found, examine(p, m, architectures(p, m, nodes.Items), &world{
			images: images, sources: named, buildahImage: c.options.BuildahImage, examines: c.options.Examines,
			makes: c.options.Makes,
		}))
	}
	return found, nil
}

// want writes the wish for an image, unless it stands there already. Others may want the image,
// too: each owns it and is one entry of wantedBy.
func (c *Controller) want(
	ctx context.Context, p *v1beta2.PreflightValidation, key types.NamespacedName, spec *v1alpha1.ModuleImageSpec, have *v1alpha1.ModuleImage,
) error {
	if have != nil && right(p, spec, have) {
		return nil
	}
	config, err := kube.Convert[droverac.ModuleImageSpecApplyConfiguration](spec)
	if err != nil {
		return err
	}
	apply := droverac.ModuleImage(key.Name,
		key.Namespace).WithLabels(map[string]string{v1beta1.ModuleNameLabel: spec.Module}).WithSpec(config).
		WithOwnerReferences(metaac.OwnerReference().
			WithAPIVersion(v1beta2.GroupVersion.String()).WithKind("PreflightValidation").WithName(p.Name).WithUID(p.UID))
	if have != nil {
		apply.WithUID(have.UID)
	}
	if err := kube.Apply(ctx, c.client, kube.PreflightOwner(p.Name), apply); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("apply ModuleImage %s: %w", key, err)
	}
	return nil
}

// right reports whether an image holds the preflight's wish.
func right(p *v1beta2.PreflightValidation, want *v1alpha1.ModuleImageSpec, have *v1alpha1.ModuleImage) bool {
	owned := slices.ContainsFunc(have.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == p.UID })
	same := have.Spec
	same.WantedBy = want.WantedBy
	return owned && slices.Contains(have.Spec.WantedBy, pipeline.WantedByPreflight(p.Name)) && equality.Semantic.DeepEqual(want, &same)
}

// release withdraws the wish for all images but wants, and deletes what nobody else wants.
func (c *Controller) release(
	ctx context.Context, name string, all map[types.NamespacedName]*v1alpha1.ModuleImage, wants map[types.NamespacedName]bool,
) error {
	for key, image := range all {
		if wants[key] || image.DeletionTimestamp != nil || !slices.Contains(image.Spec.WantedBy, pipeline.WantedByPreflight(name)) {
			continue
		}
		if alone(image) {
			if err := kube.Delete(ctx, c.client, image); err != nil {
				return err
			}
			continue
		}
		// The apply removes what this writer leaves out now, unless others wrote it, too. The image has
		// to be the one that was read: if the others go at this moment, one must see that it is the last.
		apply := droverac.ModuleImage(key.Name, key.Namespace).WithUID(image.UID).WithResourceVersion(image.ResourceVersion)
		if err := kube.Apply(ctx, c.client, kube.PreflightOwner(name), apply); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("release ModuleImage %s: %w", key, err)
		}
	}
	return nil
}

// alone reports whether nobody else wants the image, and no Module keeps it for later.
func alone(image *v1alpha1.ModuleImage) bool {
	return len(image.Spec.WantedBy) == 1 &&
		!slices.ContainsFunc(image.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Module" })
}

// report writes a status that has changed.
func (c *Controller) report(ctx context.Context, p *v1beta2.PreflightValidation, status *v1beta2.PreflightValidationStatus) error {
	if equality.Semantic.DeepEqual(&p.Status, status) {
		return nil
	}
	// Not an apply, which leaves what another operator has written: about Modules that are gone, too.
	now := p.DeepCopy()
	now.Status = *status
	patch := client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, now, patch, kube.OwnerStatus); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of PreflightValidation %s: %w", p.Name, err)
	} else if err != nil {
		return nil
	}
	c.options.Recorder.Changed(p, p.Status.Conditions, status.Conditions)
	return nil
}

const (
	workers = 2
	// passTimeout ends a pass that hangs, for example on a cache that has lost its API server.
	passTimeout = 5 * time.Minute
)

// SetupWithManager registers the controller and its watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("preflight").
		For(&v1beta2.PreflightValidation{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ModuleImage{}, handler.EnqueueRequestsFromMapFunc(watch.Wanting(pipeline.WantedByPreflight("")))).
		Watches(&v1beta1.Module{}, handler.EnqueueRequestsFromMapFunc(c.all),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.all), watch.If(architectureChanged)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout, RateLimiter: kube.Backoff(),
		})
	if c.options.Makes { // the operator may not look at others' ConfigMaps else
		b = b.WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.ofSource))
	}
	if err := b.Complete(kube.Traced("preflight", c)); err != nil {
		return fmt.Errorf("set up the controller of preflights: %w", err)
	}
	return nil
}

func architectureChanged(before, now *corev1.Node) bool {
	was, _ := kernel.PlatformOf(&before.Status.NodeInfo) // only compared
	is, _ := kernel.PlatformOf(&now.Status.NodeInfo)
	return was.Architecture != is.Architecture
}

// all are all preflights: each may depend on a Module or a node.
func (c *Controller) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return watch.Requests[*v1beta2.PreflightValidation](ctx, c.client, &v1beta2.PreflightValidationList{}, nil)
}

// ofSource are all preflights if a Module builds from the ConfigMap.
func (c *Controller) ofSource(ctx context.Context, source client.Object) []reconcile.Request {
	requests := c.all(ctx, source)
	if len(requests) == 0 {
		return nil
	}
	builds := func(m *v1beta1.Module) bool { return slices.Contains(pipeline.Sources(m), source.GetName()) }
	if len(watch.Requests(ctx, c.client, &v1beta1.ModuleList{}, builds, client.InNamespace(source.GetNamespace()))) == 0 {
		return nil
	}
	return requests
}
