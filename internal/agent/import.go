// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/manifest"
)

// importDelivery takes over what the carrier has delivered, if it has.
func (p *pass) importDelivery(ctx context.Context, f facts) error {
	d := f.order.Delivery
	digest, err := p.importTree(ctx, d)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Imported", "module", f.key.String(), "delivery", d.ID, "digest", digest)
		p.held[d.ID] = digest
	case notDelivered(err):
		p.looked[f.key] = true
	default:
		p.fail(ctx, f, f.carrierHash(), importReport(err))
	}
	return nil
}

// notDelivered: the carrier is not done, and is asked again.
func notDelivered(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// importTree takes over a carrier's output. Where there is no room for it, deliveries that only a way back would need go first.
func (p *pass) importTree(ctx context.Context, d *v1beta1.Delivery) (string, error) {
	digest, err := p.o.Store.Import(ctx, d.ID, d.CarrierUID)
	if !errors.Is(err, syscall.ENOSPC) {
		return digest, err
	}
	wanted := p.wanted()
	if len(wanted) == len(p.held) {
		return "", err
	}
	klog.FromContext(ctx).Info("No room for a delivery: what no order needs goes", "delivery", d.ID, "why", err.Error())
	if err := p.o.Store.Retain(slices.Sorted(maps.Keys(wanted))); err != nil {
		return "", fmt.Errorf("make room: %w", err)
	}
	p.held = wanted
	return p.o.Store.Import(ctx, d.ID, d.CarrierUID)
}

// importReport says why a carrier's output cannot be taken over.
func importReport(err error) report {
	var refused *manifest.Failure
	switch {
	case errors.As(err, &refused):
		return report{State: v1beta1.AttemptFailed, Reason: refused.Reason, Message: refused.Message}
	case errors.Is(err, syscall.ENOSPC):
		return report{
			State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonAgentFailed,
			Message: fmt.Sprintf("The node has no room for the carrier's output: %v. Free space on the file system of the agent's state directory, or take Modules off the node.", err),
		}
	}
	return report{
		State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonImageUnreadable,
		Message: fmt.Sprintf("The carrier's output cannot be imported: %v.", err),
	}
}

// wanted are the held deliveries without which an order could not be fulfilled, or its last form that worked not be brought back.
func (p *pass) wanted() map[string]string {
	wanted := map[string]string{}
	keep := func(id string) {
		if digest, ok := p.held[id]; ok {
			wanted[id] = digest
		}
	}
	for k, o := range p.orders {
		keep(deliveryID(o))
		if o.Next != nil {
			keep(o.Next.ID)
		}
		if w := p.journal.Worked[k]; w != nil {
			keep(w.DeliveryID)
		}
	}
	for _, l := range p.journal.Loaded {
		keep(l.DeliveryID)
	}
	return wanted
}

// needed are the deliveries to keep where there is room: the wanted ones, and one step back, of every order that stands.
func (p *pass) needed() map[string]string {
	need := p.wanted()
	for k := range p.orders {
		for _, id := range p.journal.Deliveries[k] {
			if digest, ok := p.held[id]; ok {
				need[id] = digest
			}
		}
	}
	return need
}
