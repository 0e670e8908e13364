// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/manifest"
)

// nextRefused is a carrier whose output could not be used ahead of the order that will need it.
type nextRefused struct {
	carrier string
	report  report
}

// takeNext takes over what the next order will need, so that it is here before anything is unloaded for it. The order as it stands is not
// touched. It returns why that cannot be; nil: it can, or it is not there yet.
func (p *pass) takeNext(ctx context.Context, k key) *report {
	order := p.orders[k]
	if order == nil || order.Next == nil || order.Paused || order.State == v1beta1.NodeModuleAbsent {
		delete(p.nextRefused, k)
		return nil
	}
	next := order.Next
	if _, held := p.held[next.ID]; held || next.CarrierUID == "" || p.o.Place.Idle != "" {
		delete(p.nextRefused, k)
		return nil
	}
	if was, ok := p.nextRefused[k]; ok && was.carrier == string(next.CarrierUID) {
		return &was.report
	}
	digest, err := p.importTree(ctx, next)
	switch {
	case notDelivered(err):
		p.ahead[next.CarrierUID] = true
		return nil
	case errors.Is(err, syscall.ENOSPC):
		p.ahead[next.CarrierUID] = true // there may be room by then
		r := importReport(err)
		return &r
	case err != nil:
		r := importReport(err)
		if !errors.As(err, new(*manifest.Failure)) {
			r.Message = fmt.Sprintf("What the next order needs cannot be imported: %v. What is loaded stays.", err)
		}
		p.nextRefused[k] = nextRefused{carrier: string(next.CarrierUID), report: r}
		klog.FromContext(ctx).Info("Next delivery refused", "module", k.String(), "reason", r.Reason, "message", r.Message)
		return &r
	}
	klog.FromContext(ctx).Info("Imported ahead", "module", k.String(), "delivery", next.ID, "digest", digest)
	p.held[next.ID] = digest
	return nil
}
