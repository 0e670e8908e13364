// SPDX-License-Identifier: Apache-2.0

// Package hub brings the Modules of ManagedClusterModules to clusters.
//
// Reads: ManagedClusterModule, ModuleImage, what transports know of clusters and, live, ConfigMaps
// that builds name. Writes: ModuleImages in the operator's namespace, status and finalizer of
// ManagedClusterModules and, by a transport, a Module for each cluster. Package internal/hub
// decides; the controller of images runs the Jobs.
package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	droverac "github.com/drover-project/drover/api/drover/v1alpha1/applyconfiguration/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/sources"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// +kubebuilder:rbac:groups=hub.kmm.sigs.x-k8s.io,resources=managedclustermodules,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=hub.kmm.sigs.x-k8s.io,resources=managedclustermodules/status,verbs=patch
// +kubebuilder:rbac:groups=drover.dev,resources=moduleimages,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Finalizer keeps a ManagedClusterModule until its Modules have left all known clusters.
const Finalizer = "drover.dev/hub"

// Options of the controller.
type Options struct {
	// Namespace is the operator's: images are made there.
	Namespace string
	// Hub identifies this hub among those that send to the same clusters: see [Identity].
	Hub string
	// BuildahImage builds from Dockerfiles.
	BuildahImage string
	// Transports reach the clusters. A cluster of two is the first one's.
	Transports []hub.Transport
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	// Recorder tells of conditions that change.
	Recorder kube.Recorder
	// Clock is for soak times; nil is the time of day.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedClusterModules.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
	seen    rollout.Sightings
	// kernels are what clusters said of theirs.
	kernels *kernel.Newcomers[hub.Platform]
}

// New makes the controller. c reads from a cache with c's own writes; live from the API server.
func New(c client.Client, live client.Reader, o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Controller{client: c, live: live, options: o, kernels: kernel.NewNewcomers[hub.Platform](hub.MaxPlatforms)}
}

// Reconcile asks for missing images, sends Modules, and reports how the clusters stand.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	m := &hubv1beta1.ManagedClusterModule{}
	if err := c.client.Get(ctx, request.NamespacedName, m); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get ManagedClusterModule: %w", err)
	} else if err != nil {
		c.seen.Forget(request.NamespacedName)
		return reconcile.Result{}, c.orphans(ctx, request.Name)
	}
	if m.DeletionTimestamp != nil {
		return reconcile.Result{}, c.leave(ctx, m)
	}
	if err := kube.AddFinalizer(ctx, c.client, m, Finalizer); err != nil {
		return reconcile.Result{}, err
	}
	o, err := c.observe(ctx, m)
	if errors.Is(err, hub.ErrBeginning) {
		return reconcile.Result{}, nil // it will be an event
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	// An image that cannot be asked for must not delay clusters that need none.
	wanted := c.want(ctx, m, &o.Facts)
	now := c.options.Clock.Now()
	d, err := hub.Decide(&o.Facts, now)
	if err != nil {
		return reconcile.Result{}, errors.Join(wanted, err)
	}
	acted := c.act(ctx, m, d, o.reach)
	result := reconcile.Result{RequeueAfter: o.again}
	if at := d.Order.Again; !at.IsZero() {
		result.RequeueAfter = sooner(result.RequeueAfter, max(at.Sub(now), time.Second))
	}
	return result, errors.Join(wanted, acted, c.report(ctx, m, hub.StatusOf(m, d, now)))
}

// sooner is the shorter of two times, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// observed is everything that is decided from.
type observed struct {
	hub.Facts
	// reach is the transport of each cluster, also of former targets.
	reach map[string]hub.Transport
	// again is when the answer changes without an event; 0: never.
	again time.Duration
}

func (c *Controller) observe(ctx context.Context, m *hubv1beta1.ManagedClusterModule) (*observed, error) {
	o := &observed{Facts: hub.Facts{Module: m, Parcels: map[string]hub.Parcel{}, Seen: &c.seen}, reach: map[string]hub.Transport{}}
	var all []hub.Target
	for _, t := range c.options.Transports {
		targets, err := t.Targets(ctx)
		if errors.Is(err, hub.ErrAbsent) {
			o.Absent = append(o.Absent, t.Name())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("clusters by %s: %w", t.Name(), err)
		}
		parcels, err := t.Parcels(ctx, m.Name)
		if err != nil {
			return nil, fmt.Errorf("what clusters have by %s: %w", t.Name(), err)
		}
		for _, target := range targets {
			if o.reach[target.Name] == nil {
				o.reach[target.Name] = t
				all = append(all, target)
			}
		}
		for cluster, parcel := range parcels {
			if o.reach[cluster] == nil {
				o.reach[cluster] = t
			}
			if o.reach[cluster] == t {
				o.Parcels[cluster] = parcel
			}
		}
	}
	o.Targets = hub.Selected(m, all)
	var err error
	platforms, waits := c.platforms(o, all)
	if o.Made, err = c.makings(ctx, m, platforms); err != nil {
		return nil, err
	}
	o.Made.Postpone(waits)
	o.Images, err = c.images(ctx)
	return o, err
}

// platforms are what the selected clusters run, each once. Those wait that only clusters with too
// many new ones run.
func (c *Controller) platforms(o *observed, all []hub.Target) (platforms []hub.Platform, waits func(hub.Platform) bool) {
	now, exists, allowed := c.options.Clock.Now(), map[string]bool{}, map[hub.Platform]bool{}
	for i := range all {
		exists[all[i].Name] = true
	}
	o.Limited = map[string]map[hub.Platform]bool{}
	for _, t := range o.Targets {
		said, _ := hub.Platforms(t.Claims)
		for _, p := range said {
			ok, left := c.kernels.Allow(t.Name, p, now)
			if allowed[p] = allowed[p] || ok; ok {
				continue
			}
			if o.Limited[t.Name] == nil {
				o.Limited[t.Name] = map[hub.Platform]bool{}
			}
			o.Limited[t.Name][p] = true
			o.again = sooner(o.again, left)
		}
	}
	c.kernels.Keep(exists, now)
	return slices.Collect(maps.Keys(allowed)), func(p hub.Platform) bool { return !allowed[p] }
}

// makings are the images for platforms.
func (c *Controller) makings(ctx context.Context, m *hubv1beta1.ManagedClusterModule, platforms []hub.Platform) (*hub.Makings, error) {
	named, err := sources.Read(ctx, c.live, c.options.Namespace, pipeline.Sources(hub.Whole(m)))
	if err != nil {
		return nil, fmt.Errorf("ManagedClusterModule %s: %w", m.Name, err)
	}
	made, err := hub.MakingsOf(m, platforms, c.options.Namespace, c.options.BuildahImage, named)
	if err != nil {
		return nil, fmt.Errorf("ManagedClusterModule %s: %w", m.Name, err)
	}
	return made, nil
}

// images are all that are made in the operator's namespace, by name.
func (c *Controller) images(ctx context.Context) (map[string]*v1alpha1.ModuleImage, error) {
	var list v1alpha1.ModuleImageList
	if err := c.client.List(ctx, &list, client.InNamespace(c.options.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	all := make(map[string]*v1alpha1.ModuleImage, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// want asks for the images that are missing, and takes back its wish for others.
func (c *Controller) want(ctx context.Context, m *hubv1beta1.ManagedClusterModule, f *hub.Facts) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.Made.Specs)) {
		if have := f.Images[name]; have == nil || !right(m, f.Made.Specs[name], have) {
			errs = append(errs, c.ask(ctx, m, name, f.Made.Specs[name], have))
		}
	}
	if slices.ContainsFunc(f.Targets, func(t hub.Target) bool { return t.Unknown }) {
		return errors.Join(errs...) // it may run what an image is for
	}
	return errors.Join(append(errs, c.release(ctx, m.Name, f.Images, f.Made.Specs))...)
}

func (c *Controller) ask(ctx context.Context, m *hubv1beta1.ManagedClusterModule, name string, spec *v1alpha1.ModuleImageSpec,
	have *v1alpha1.ModuleImage) error {
	config, err := kube.Convert[droverac.ModuleImageSpecApplyConfiguration](spec)
	if err != nil {
		return err
	}
	apply := droverac.ModuleImage(name, c.options.Namespace).WithLabels(map[string]string{hub.NameLabel: m.Name}).WithSpec(config).
		WithOwnerReferences(metaac.OwnerReference().
			WithAPIVersion(hubv1beta1.GroupVersion.String()).WithKind("ManagedClusterModule").WithName(m.Name).WithUID(m.UID))
	if have != nil {
		apply.WithUID(have.UID)
	}
	if err := kube.Apply(ctx, c.client, kube.HubOwner(m.Name), apply); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("apply ModuleImage %s/%s: %w", c.options.Namespace, name, err)
	}
	return nil
}

// right reports whether an image says already what is wanted of it.
func right(m *hubv1beta1.ManagedClusterModule, want *v1alpha1.ModuleImageSpec, have *v1alpha1.ModuleImage) bool {
	owned := false
	for i := range have.OwnerReferences {
		owned = owned || have.OwnerReferences[i].UID == m.UID
	}
	same := have.Spec
	same.WantedBy = want.WantedBy
	return owned && slices.Contains(have.Spec.WantedBy, hub.WantedBy(m.Name)) && equality.Semantic.DeepEqual(want, &same)
}

// release withdraws the wish for images that are no longer wanted, and deletes those of nobody
// else.
func (c *Controller) release(ctx context.Context, name string, all map[string]*v1alpha1.ModuleImage,
	wants map[string]*v1alpha1.ModuleImageSpec) error {
	var errs []error
	for key, image := range all {
		if wants[key] != nil || image.DeletionTimestamp != nil || !slices.Contains(image.Spec.WantedBy, hub.WantedBy(name)) {
			continue
		}
		if len(image.Spec.WantedBy) == 1 {
			errs = append(errs, kube.Delete(ctx, c.client, image))
			continue
		}
		apply := droverac.ModuleImage(key, image.Namespace).WithUID(image.UID).WithResourceVersion(image.ResourceVersion)
		if err := kube.Apply(ctx, c.client, kube.HubOwner(name), apply); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("release ModuleImage %s/%s: %w", image.Namespace, key, err))
		}
	}
	return errors.Join(errs...)
}

// act sends to and recalls from many clusters at a time. A failure stays that cluster's, in d.
func (c *Controller) act(ctx context.Context, m *hubv1beta1.ManagedClusterModule, d *hub.Decision, reach map[string]hub.Transport) error {
	var mu sync.Mutex
	failed := func(cluster string, err error) {
		mu.Lock()
		defer mu.Unlock()
		d.Fail(cluster, err)
	}
	sent := kube.Each(ctx, atOnce, slices.Sorted(maps.Keys(d.Send)), func(ctx context.Context, cluster string) error {
		if err := reach[cluster].Send(ctx, cluster, d.Send[cluster]); err != nil {
			failed(cluster, err)
			return fmt.Errorf("send to cluster %s: %w", cluster, err)
		}
		return nil
	})
	key := types.NamespacedName{Namespace: m.Spec.SpokeNamespace, Name: m.Name}
	recalled := kube.Each(ctx, atOnce, d.Recall, func(ctx context.Context, cluster string) error {
		if _, err := reach[cluster].Recall(ctx, cluster, key); err != nil {
			if hub.Refuses(err) {
				mu.Lock()
				d.Kept = append(d.Kept, hub.Keeps(&hub.Target{Name: cluster}, err))
				mu.Unlock()
			}
			return fmt.Errorf("recall from cluster %s: %w", cluster, err)
		}
		return nil
	})
	return errors.Join(sent, recalled)
}

// report writes the status if it changed.
func (c *Controller) report(ctx context.Context, m *hubv1beta1.ManagedClusterModule, status *hubv1beta1.ManagedClusterModuleStatus) error {
	if equality.Semantic.DeepEqual(&m.Status, status) {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("write the status of ManagedClusterModule %s: %w", m.Name, err)
	}
	// Zeros are written: without any field, apply would leave null, which the schema refuses.
	counts := &status.ModuleLoader
	fields["moduleLoader"] = map[string]any{
		"nodesMatchingSelectorNumber": int64(counts.NodesMatchingSelectorNumber), "desiredNumber": int64(counts.DesiredNumber),
		"availableNumber": int64(counts.AvailableNumber),
	}
	apply := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": hubv1beta1.GroupVersion.String(), "kind": "ManagedClusterModule",
		"metadata": map[string]any{"name": m.Name, "uid": string(m.UID)}, "status": fields,
	}})
	if err := kube.ApplyStatus(ctx, c.client, kube.OwnerStatus, apply); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has gone
	} else if err != nil {
		return fmt.Errorf("apply status of ManagedClusterModule %s: %w", m.Name, err)
	}
	c.options.Recorder.Changed(m, m.Status.Conditions, status.Conditions)
	return nil
}
