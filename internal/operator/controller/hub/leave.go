// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/shared/kube"
)

// leave recalls the Module from all clusters, and removes the finalizer when none has it any more.
func (c *Controller) leave(ctx context.Context, m *hubv1beta1.ManagedClusterModule) error {
	var left []hub.State
	var errs []error
	for _, t := range c.options.Transports {
		still, err := c.recall(ctx, m, t)
		switch {
		case errors.Is(err, hub.ErrBeginning):
			return nil // it will be an event
		case err != nil:
			errs = append(errs, err)
		}
		left = append(left, still...)
	}
	if len(left) > 0 || len(errs) > 0 { // each one that goes is an event
		if len(left) > 0 {
			errs = append(errs, c.report(ctx, m, hub.Leaving(m, left, c.options.Clock.Now())))
		}
		return errors.Join(errs...)
	}
	all, err := c.images(ctx)
	if err != nil {
		return err
	}
	if err := c.release(ctx, m.Name, all, nil); err != nil {
		return err
	}
	c.seen.Forget(client.ObjectKeyFromObject(m))
	return kube.RemoveFinalizer(ctx, c.client, m, Finalizer)
}

// recall recalls a Module from the clusters of a transport. left are those that may still have it.
func (c *Controller) recall(ctx context.Context, m *hubv1beta1.ManagedClusterModule, t hub.Transport) (left []hub.State, err error) {
	targets, err := t.Targets(ctx)
	if errors.Is(err, hub.ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("clusters by %s: %w", t.Name(), err)
	}
	parcels, err := t.Parcels(ctx, m.Name)
	if err != nil {
		return nil, fmt.Errorf("what clusters have by %s: %w", t.Name(), err)
	}
	known := map[string]*hub.Target{}
	for i := range targets {
		known[targets[i].Name] = &targets[i]
	}
	for _, one := range hub.Selected(m, targets) {
		if _, has := parcels[one.Name]; !has && one.Unknown {
			left = append(left, hub.Left(&one, false))
		}
	}
	var errs []error
	key := types.NamespacedName{Namespace: m.Spec.SpokeNamespace, Name: m.Name}
	for _, cluster := range slices.Sorted(maps.Keys(parcels)) {
		gone, err := t.Recall(ctx, cluster, key)
		target := cmp.Or(known[cluster], &hub.Target{Name: cluster})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("recall from cluster %s: %w", cluster, err))
			still := hub.Left(target, target.Unreachable == "")
			if hub.Refuses(err) {
				still = hub.Keeps(target, err)
			}
			left = append(left, still)
		case !gone:
			left = append(left, hub.Left(target, target.Unreachable == ""))
		}
	}
	return left, errors.Join(errs...)
}

// orphans recalls this hub's Modules of a ManagedClusterModule that went while a cluster was
// unknown.
func (c *Controller) orphans(ctx context.Context, name string) error {
	var errs []error
	for _, t := range c.options.Transports {
		parcels, err := t.Parcels(ctx, name)
		if errors.Is(err, hub.ErrAbsent) {
			continue
		}
		errs = append(errs, err)
		for cluster, p := range parcels {
			if p.Module == nil || p.Module.Annotations[hub.HubAnnotation] != hub.Sender(c.options.Hub, t.Name(), cluster) {
				continue
			}
			if _, err := t.Recall(ctx, cluster, client.ObjectKeyFromObject(p.Module)); err != nil {
				errs = append(errs, fmt.Errorf("recall %s, whose ManagedClusterModule is gone, from cluster %s: %w", name, cluster, err))
			}
		}
	}
	return errors.Join(errs...)
}
