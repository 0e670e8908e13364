// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	droverac "github.com/drover-project/drover/api/drover/v1alpha1/applyconfiguration/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/sources"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/problems"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// history is how many unwanted images stay per Module, for a way back without a build.
const history = 32

// Module reconciles the images that one Module wants.
func (c *Controller) Module(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.options.Gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	m := &v1beta1.Module{}
	if err := c.client.Get(ctx, request.NamespacedName, m); apierrors.IsNotFound(err) {
		return reconcile.Result{}, c.orphans(ctx, request.NamespacedName)
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get Module: %w", err)
	}
	if placement.Paused(m) && m.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	wants, problem, again, err := c.wants(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	told := problems.Report(ctx, c.client, m, v1beta1.ProblemImages, problems.Whole(problem))
	return reconcile.Result{RequeueAfter: again}, errors.Join(told, c.make(ctx, m, wants))
}

// wants are the inputs of all images that a Module asks for now, by name, and why others cannot be
// declared. After again, time alone makes more of them; 0: it does not.
func (c *Controller) wants(ctx context.Context, m *v1beta1.Module) (
	wants map[string]*v1alpha1.ModuleImageSpec, problem *reasons.Problem, again time.Duration, err error,
) {
	wants = map[string]*v1alpha1.ModuleImageSpec{}
	if m.DeletionTimestamp != nil || !pipeline.Makes(m) {
		return wants, nil, 0, nil
	}
	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	if err != nil {
		return wants, nil, 0, nil //nolint:nilerr // KernelsCovered reports the mapping's error
	}
	platforms, again, err := c.platforms(ctx, m)
	if err != nil {
		return nil, nil, 0, err
	}
	named, err := sources.Read(ctx, c.live, m.Namespace, pipeline.Sources(m))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("sources of Module %s/%s: %w", m.Namespace, m.Name, err)
	}
	for _, p := range platforms {
		resolved, found, err := mapper.For(p.Kernel, p.Architecture)
		if err != nil || !found {
			continue
		}
		spec, err := pipeline.Declare(m, &resolved, p.Architecture)
		if err == nil && spec != nil {
			err = pipeline.Complete(m.Namespace, spec, named[pipeline.Source(spec)], c.options.Pipeline.BuildahImage)
		}
		switch {
		case err != nil:
			problem = &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: err.Error()}
		case spec != nil:
			pipeline.Want(spec, pipeline.WantedByModule(m.Name), placement.RetryAsked(m))
			wants[pipeline.Name(spec)] = spec
		}
	}
	return wants, problem, again, nil
}

// platforms are the distinct kernels of a Module's nodes; those of nodes that name too many wait,
// and what no kernel can be gets no image.
func (c *Controller) platforms(ctx context.Context, m *v1beta1.Module) (all []kernel.Platform, again time.Duration, err error) {
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, 0, fmt.Errorf("list Nodes: %w", err)
	}
	now, found, exists := c.options.Clock.Now(), map[kernel.Platform]bool{}, map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		exists[node.Name] = true
		p, err := kernel.PlatformOf(&node.Status.NodeInfo)
		if err != nil || !placement.Eligible(m, node) {
			continue
		}
		if ok, left := c.kernels.Allow(node.Name, p, now); ok {
			found[p] = true
		} else {
			log.FromContext(ctx).Info("The node names too many new kernels; its image waits", "node", node.Name, "kernel", p.Kernel, "again", left)
			if again == 0 || left < again {
				again = left
			}
		}
	}
	c.kernels.Keep(exists, now)
	return slices.SortedFunc(maps.Keys(found), func(a, b kernel.Platform) int {
		return slices.Compare([]string{a.Kernel, a.Architecture}, []string{b.Kernel, b.Architecture})
	}), again, nil
}

// make applies the wishes, withdraws those that ended, and deletes the oldest unwanted images.
func (c *Controller) make(ctx context.Context, m *v1beta1.Module, wants map[string]*v1alpha1.ModuleImageSpec) error {
	var have v1alpha1.ModuleImageList
	if err := c.client.List(ctx, &have, client.InNamespace(m.Namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name}); err != nil {
		return fmt.Errorf("list ModuleImages: %w", err)
	}
	var unwanted []*v1alpha1.ModuleImage
	for i := range have.Items {
		image := &have.Items[i]
		want, ok := wants[image.Name]
		delete(wants, image.Name)
		mine := slices.Contains(image.Spec.WantedBy, pipeline.WantedByModule(m.Name))
		switch {
		case ok && right(want, &image.Spec):
		case ok:
			if err := c.apply(ctx, m, image, want); err != nil {
				return err
			}
		case mine:
			kept := image.Spec.DeepCopy()
			kept.WantedBy = nil
			if err := c.apply(ctx, m, image, kept); err != nil {
				return err
			}
		case len(image.Spec.WantedBy) == 0 && image.DeletionTimestamp == nil:
			unwanted = append(unwanted, image)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name}}
		if err := c.apply(ctx, m, image, wants[name]); err != nil {
			return err
		}
	}
	slices.SortFunc(unwanted, func(a, b *v1alpha1.ModuleImage) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for i := history; i < len(unwanted); i++ {
		if err := kube.Delete(ctx, c.client, unwanted[i]); err != nil {
			return err
		}
	}
	return nil
}

// orphans withdraws the wishes of a deleted Module. The garbage collector does not if the Module
// was deleted with "orphan".
func (c *Controller) orphans(ctx context.Context, key types.NamespacedName) error {
	var have v1alpha1.ModuleImageList
	if err := c.client.List(ctx, &have, client.InNamespace(key.Namespace),
		client.MatchingLabels{v1beta1.ModuleNameLabel: key.Name}); err != nil {
		return fmt.Errorf("list ModuleImages: %w", err)
	}
	if len(have.Items) == 0 {
		return nil
	}
	// The cache may be late.
	switch err := c.live.Get(ctx, key, &v1beta1.Module{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get Module: %w", err)
	}
	mine := pipeline.WantedByModule(key.Name)
	for i := range have.Items {
		image := &have.Items[i]
		others := slices.DeleteFunc(slices.Clone(image.Spec.WantedBy), func(by string) bool { return by == mine })
		switch {
		case len(others) == 0:
			if err := kube.Delete(ctx, c.client, image); err != nil {
				return err
			}
		case len(others) < len(image.Spec.WantedBy):
			apply := droverac.ModuleImage(image.Name, image.Namespace).WithUID(image.UID).WithResourceVersion(image.ResourceVersion)
			if err := kube.Apply(ctx, c.client, kube.ModuleOwner(key.Namespace, key.Name), apply); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("release ModuleImage %s/%s: %w", image.Namespace, image.Name, err)
			}
		}
	}
	return nil
}

// right reports whether an image's spec says what the Module wants. Others may want it, too.
func right(want, have *v1alpha1.ModuleImageSpec) bool {
	if !slices.Contains(have.WantedBy, want.WantedBy[0]) {
		return false
	}
	same := *have
	same.WantedBy = want.WantedBy
	return equality.Semantic.DeepEqual(want, &same)
}

func (c *Controller) apply(ctx context.Context, m *v1beta1.Module, image *v1alpha1.ModuleImage, spec *v1alpha1.ModuleImageSpec) error {
	config, err := kube.Convert[droverac.ModuleImageSpecApplyConfiguration](spec)
	if err != nil {
		return err
	}
	apply := droverac.ModuleImage(image.Name, m.Namespace).WithLabels(map[string]string{v1beta1.ModuleNameLabel: m.Name}).WithSpec(config).
		WithOwnerReferences(metaac.OwnerReference().WithAPIVersion(v1beta1.GroupVersion.String()).WithKind("Module").WithName(m.Name).WithUID(
			m.UID))
	if image.UID != "" {
		apply.WithUID(image.UID)
	}
	if err := kube.Apply(ctx, c.client, kube.ModuleOwner(m.Namespace, m.Name), apply); err != nil {
		return fmt.Errorf("apply ModuleImage %s/%s: %w", m.Namespace, image.Name, err)
	}
	return nil
}
