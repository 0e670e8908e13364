// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

// decision is what to do about an image. It waits while an older one has its name.
func (c *Controller) decision(ctx context.Context, image *v1alpha1.ModuleImage, runs []pipeline.Run, lost, now time.Time) (*decision,
	error) {
	var all v1alpha1.ModuleImageList
	if err := c.client.List(ctx, &all, client.InNamespace(image.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	if rival := pipeline.Rival(image, all.Items); rival != nil && len(image.Spec.WantedBy) > 0 {
		return yield(image, rival, runs, lost, now), nil
	}
	return decide(image, runs, lost, now), nil
}

// yield has an image wait as if nobody wanted it.
func yield(image, rival *v1alpha1.ModuleImage, runs []pipeline.Run, lost, now time.Time) *decision {
	waiting := image.DeepCopy()
	waiting.Spec.WantedBy = nil
	d := decide(waiting, runs, lost, now)
	d.status.Conditions = nil
	c := unavailable(v1beta1.ReasonImageConflict, pipeline.Clash(image, rival))
	stamp(&d.status, image, now, c)
	c.Type, c.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
	stamp(&d.status, image, now, c)
	return d
}

// imagesOfName are those that share a name with the image that changed.
func (c *Controller) imagesOfName(ctx context.Context, object client.Object) []reconcile.Request {
	changed, ok := object.(*v1alpha1.ModuleImage)
	if !ok {
		return nil
	}
	return c.imagesIn(ctx, changed.Namespace, func(other *v1alpha1.ModuleImage) bool {
		return other.UID != changed.UID && pipeline.Share(&changed.Spec, &other.Spec) != ""
	})
}
