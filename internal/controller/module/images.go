// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/reasons"
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

// order is what to load on a node. For an image that is made in the cluster, what it is made from is part of the delivery's identity.
func (pl *planner) order(v *view) order {
	info := &v.node.Status.NodeInfo
	o := pl.orders.on(info.KernelVersion, info.Architecture)
	if o.err != nil || !o.found || !pl.options.Images || !pl.orders.declared.Makes() {
		return o
	}
	key := info.KernelVersion + "/" + info.Architecture
	if known, ok := pl.made[key]; ok {
		return known
	}
	if pl.made == nil {
		pl.made = map[string]order{}
	}
	pl.made[key] = pl.asMade(o, info)
	return pl.made[key]
}

func (pl *planner) asMade(o order, node *corev1.NodeSystemInfo) order {
	config := &o.entry.Config
	declared, err := pl.orders.declared.On(config, o.mapping, node)
	switch {
	case err != nil:
		o.problem = &reasons.Problem{Reason: v1beta1.ReasonBuildInputMissing, Message: err.Error()}
		return o
	case declared == nil:
		return o
	}
	answer := pipeline.Ask(pl.snap.images, declared)
	if answer.Reason != "" {
		o.problem = &reasons.Problem{Reason: answer.Reason, Message: answer.Message}
	}
	if answer.Hash == "" {
		return o
	}
	id, err := delivery.ID(pl.orders.module, config, answer.Hash)
	if err != nil {
		return order{err: err}
	}
	entry := *o.entry
	entry.Delivery = &v1beta1.Delivery{ID: id}
	o.entry, o.image = &entry, answer.Reference
	return o
}

// unmade reports whether the order needs an image that is still to be built or signed. The node keeps what it has until then, and one that
// holds the order's content already needs no image.
func (pl *planner) unmade(o *order, v *view) bool {
	if o.problem == nil || holds(v.config, o.entry.Delivery.ID) {
		return false
	}
	if pl.holders == nil {
		pl.holders = map[string]reasons.Problem{}
	}
	pl.holders[v.name] = *o.problem
	return true
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
