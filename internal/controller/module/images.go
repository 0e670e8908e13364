// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/desired"
)

// images reads the images that are made in the cluster for a Module.
func (c *Controller) images(ctx context.Context, m *v1beta1.Module) ([]v1alpha1.ModuleImage, error) {
	if !c.options.Images || m == nil || m.Spec.ModuleLoader == nil {
		return nil, nil
	}
	var images v1alpha1.ModuleImageList
	err := c.client.List(ctx, &images, client.InNamespace(m.Namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: m.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	return images.Items, nil
}

// unmade reports whether a node needs an image that is still to be built or signed. It keeps what it has until then.
func (pl *planner) unmade(a *desired.Answer, v *view) bool {
	return a.Missing(func(id string) bool { return holds(v.config, id) }) != nil
}

// imageEvents queues the Module of an image that is made, or fails to be.
func imageEvents() handler.Funcs {
	add := func(q queue, object client.Object) {
		key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[v1beta1.ModuleNameLabel]}
		q.AddAfter(reconcile.Request{NamespacedName: key}, settle)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object) },
	}
}
