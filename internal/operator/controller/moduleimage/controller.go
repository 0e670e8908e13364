// SPDX-License-Identifier: Apache-2.0

// Package moduleimage has images built and signed in the cluster.
//
// Reads: Module, Node, ModuleImage, Job, pod, the metadata of ConfigMaps and, live, the ConfigMap
// that a build names and its ServiceAccount. Writes: ModuleImages and their status, Jobs, and in a
// Module's status what keeps its images from being declared. It may not read any Secret: a Job's
// steps mount them.
//
// One reconciler makes a ModuleImage for each distinct set of inputs of a Module, and withdraws the
// Module's wish where it no longer wants one. The other runs a ModuleImage's Jobs. It decides by
// the Jobs alone and never reads its own status.
//
// The same inputs have the same name and are built once. An image that nobody wants keeps its Jobs,
// the active one suspended, in case it is wanted again; of each Module's, the newest stay.
package moduleimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	droverac "github.com/drover-project/drover/api/drover/v1alpha1/applyconfiguration/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups=drover.dev,resources=moduleimages,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=drover.dev,resources=moduleimages/status,verbs=patch
// +kubebuilder:rbac:groups=drover.dev,resources=moduleimages/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=get;list;watch

// Options of the controller.
type Options struct {
	// Pipeline says how Jobs are rendered.
	Pipeline pipeline.Options
	// Mine chooses images where another operator of the cluster makes others; nil: all.
	Mine func(*v1alpha1.ModuleImage) bool
	// Gate keeps the controller from writing while it is closed.
	Gate *gate.Gate
	// Clock is for back-off; nil is the time of day.
	Clock clock.PassiveClock
}

// maxKernels is how many new kernels of one node get images within an hour: an upgrade that is
// tried, undone and tried again takes three.
const maxKernels = 4

// Controller is both reconcilers.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options
	kernels *kernel.Newcomers[kernel.Platform]
}

// New makes the controller. c's cache shows its own writes; live reads from the API server.
func New(c client.Client, live client.Reader, o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Controller{client: c, live: live, options: o, kernels: kernel.NewNewcomers[kernel.Platform](maxKernels)}
}

// Image reconciles one ModuleImage: it runs its Jobs.
func (c *Controller) Image(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	image := &v1alpha1.ModuleImage{}
	if err := c.client.Get(ctx, request.NamespacedName, image); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // its Jobs go with it
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get ModuleImage: %w", err)
	}
	if c.options.Mine != nil && !c.options.Mine(image) {
		return reconcile.Result{}, nil
	}
	o, err := c.pipeline(ctx, image)
	if err != nil {
		return reconcile.Result{}, err
	}
	settings, err := c.settings(ctx, image, o)
	if err != nil {
		return reconcile.Result{}, err
	}
	runs, lost, err := c.observe(ctx, image, settings)
	if err != nil {
		return reconcile.Result{}, err
	}
	d, err := c.decision(ctx, image, runs, lost)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.act(ctx, image, d, settings, o); err != nil {
		d.refuse(err)
		return reconcile.Result{}, errors.Join(err, c.report(ctx, image, &d.status)) // retried with back-off
	}
	return reconcile.Result{RequeueAfter: d.again}, c.report(ctx, image, &d.status)
}

// pipeline are the options of an image's Jobs: the operator's, what its nodes can do, and the pull
// secrets of the ServiceAccount, which the API server only gives to pods that name none themselves.
// The Job says if the ServiceAccount is missing.
func (c *Controller) pipeline(ctx context.Context, image *v1alpha1.ModuleImage) (*pipeline.Options, error) {
	o := c.options.Pipeline
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: image.Namespace, Name: cmp.Or(image.Spec.ServiceAccountName, "default")}
	if err := c.live.Get(ctx, key, account); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ServiceAccount %s: %w", key, err)
	}
	o.AccountSecrets = account.ImagePullSecrets
	if !pipeline.ReadsImages(&image.Spec) {
		return &o, nil
	}
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	o.MountImages = pipeline.MountsImages(&image.Spec, &o, nodes.Items)
	return &o, nil
}

// settings identify the pod of a Job that would be made now, and the state of the ConfigMap with
// proxies, mirrors and authorities.
func (c *Controller) settings(ctx context.Context, image *v1alpha1.ModuleImage, o *pipeline.Options) (string, error) {
	environment := &metav1.PartialObjectMetadata{}
	environment.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	key := client.ObjectKey{Namespace: image.Namespace, Name: pipeline.EnvironmentConfigMap}
	switch err := c.client.Get(ctx, key, environment); {
	case apierrors.IsNotFound(err):
		return pipeline.Settings(image, o), nil
	case err != nil:
		return "", fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	return pipeline.Settings(image, o) + "-" + string(environment.UID) + "-" + environment.ResourceVersion, nil
}

// observe reads an image's Jobs and pods. lost is when the newest delivery did not find the image.
func (c *Controller) observe(ctx context.Context, image *v1alpha1.ModuleImage, settings string) (runs []pipeline.Run, lost time.Time,
	err error) {
	own, in := client.MatchingLabels{v1alpha1.ImageLabel: image.Name}, client.InNamespace(image.Namespace)
	var jobs batchv1.JobList
	if err := c.client.List(ctx, &jobs, in, own); err != nil {
		return nil, lost, fmt.Errorf("list Jobs: %w", err)
	}
	var pods, carriers corev1.PodList
	if err := c.client.List(ctx, &pods, in, own, client.UnsafeDisableDeepCopy); err != nil {
		return nil, lost, fmt.Errorf("list pods of Jobs: %w", err)
	}
	err = c.client.List(ctx, &carriers, in, client.MatchingLabels{v1beta1.ModuleNameLabel: image.Spec.Module}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, lost, fmt.Errorf("list carrier pods: %w", err)
	}
	mine := jobs.Items[:0]
	for i := range jobs.Items {
		if owner := jobs.Items[i].OwnerReferences; len(owner) > 0 && owner[0].UID == image.UID && jobs.Items[i].DeletionTimestamp == nil {
			mine = append(mine, jobs.Items[i])
		}
	}
	for i := range carriers.Items {
		pod := &carriers.Items[i]
		p := delivery.ProblemOf(pod)
		if delivery.IsCarrier(pod) && p != nil && p.Reason == v1beta1.ReasonImageNotFound && pipeline.Names(p.Message, image.Spec.Image) &&
			pod.CreationTimestamp.After(lost) {
			lost = pod.CreationTimestamp.Time
		}
	}
	runs = pipeline.Runs(&image.Spec, mine, pods.Items)
	for i := range runs {
		runs[i].Stale = runs[i].Job.Annotations[pipeline.SettingsAnnotation] != settings
	}
	return runs, lost, nil
}

// decision is what to do about an image. It waits while an older one has its name.
func (c *Controller) decision(ctx context.Context, image *v1alpha1.ModuleImage, runs []pipeline.Run, lost time.Time) (*decision, error) {
	now := c.options.Clock.Now()
	var all v1alpha1.ModuleImageList
	if err := c.client.List(ctx, &all, client.InNamespace(image.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	if rival := pipeline.Rival(image, all.Items); rival != nil && len(image.Spec.WantedBy) > 0 {
		return yield(image, rival, runs, lost, now), nil
	}
	return decide(image, runs, lost, now), nil
}

// refuse says that the API server refuses a Job, for example because of a quota or a policy.
func (d *decision) refuse(err error) {
	if d.cause == "" || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return
	}
	d.status.Job = ""
	if meta.IsStatusConditionTrue(d.status.Conditions, v1alpha1.ConditionAvailable) {
		return // it was only to be checked again
	}
	d.status.Conditions = nil
	c := unavailable(v1beta1.ReasonBuildFailed, "the cluster refuses the Job for image %s: %v", d.image.Spec.Image, err)
	d.stamp(c)
	c.Type, c.Status = v1alpha1.ConditionReconciling, metav1.ConditionTrue
	d.stamp(c)
}

// act changes Jobs. It records what ended before it makes or drops anything because of that.
func (c *Controller) act(ctx context.Context, image *v1alpha1.ModuleImage, d *decision, settings string, o *pipeline.Options) error {
	for _, r := range d.record {
		base := r.Job.DeepCopy()
		if r.Job.Annotations == nil {
			r.Job.Annotations = map[string]string{}
		}
		r.Job.Annotations[pipeline.ResultAnnotation] = pipeline.Record(&r.Outcome)
		if err := c.patch(ctx, r.Job, base); err != nil {
			return err
		}
	}
	for _, r := range d.suspend {
		base := r.Job.DeepCopy()
		r.Job.Spec.Suspend = ptr.To(!ptr.Deref(r.Job.Spec.Suspend, false))
		if err := c.patch(ctx, r.Job, base); err != nil {
			return err
		}
	}
	for _, r := range d.drop {
		if err := kube.Delete(ctx, c.client, r.Job); err != nil {
			return err
		}
	}
	if d.cause == "" {
		return nil
	}
	job := pipeline.Job(image, d.next, d.cause, o)
	job.Annotations[pipeline.SettingsAnnotation] = settings
	// If the Job exists, the cache is late, and its arrival there is an event.
	err := kube.Known(ctx, func() error { return c.client.Create(ctx, job, kube.OwnerImage) })
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

func (c *Controller) patch(ctx context.Context, job, base *batchv1.Job) error {
	if err := c.client.Patch(ctx, job, client.MergeFrom(base), kube.OwnerImage); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// report writes a status that has changed.
func (c *Controller) report(ctx context.Context, image *v1alpha1.ModuleImage, status *v1alpha1.ModuleImageStatus) error {
	if equality.Semantic.DeepEqual(&image.Status, status) {
		return nil
	}
	config, err := kube.Convert[droverac.ModuleImageStatusApplyConfiguration](status)
	if err != nil {
		return err
	}
	apply := droverac.ModuleImage(image.Name, image.Namespace).WithUID(image.UID).WithStatus(config)
	if err := kube.ApplyStatus(ctx, c.client, kube.OwnerImage, apply); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("apply status of ModuleImage %s/%s: %w", image.Namespace, image.Name, err)
	}
	return nil
}
