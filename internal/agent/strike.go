// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
)

// strike is what the fuse has against a build that it holds back, for the operator, who sees all nodes; nil: only an earlier load that has
// not returned.
func (p *pass) strike(f facts, b fuse.Build) (*v1beta1.Strike, int32) {
	for _, s := range p.o.Fuse.List(f.now) {
		began := s.Began
		if began.IsZero() && !s.Quarantined.IsZero() {
			began = s.Quarantined.Add(-fuse.QuarantineFor)
		}
		if s.Build != b || began.IsZero() {
			continue
		}
		at := metav1.NewTime(began.UTC()).Rfc3339Copy()
		excused := f.order != nil && f.order.Excused != nil && !at.After(f.order.Excused.Time)
		return &v1beta1.Strike{
			Delivery: deliveryID(f.order), Build: b.String(), Began: at, Evidence: s.Evidence, Kept: excused && !s.Evidence,
			Retry: p.obeyed.of(f.key),
		}, int32(min(s.Strikes, math.MaxInt32)) //nolint:gosec // bounded
	}
	return nil, 0
}

// excuse takes back what a build has been held to, if the operator found the cause outside of the node. It tells whether it did.
func (p *pass) excuse(f facts, b fuse.Build) (bool, error) {
	strike, _ := p.strike(f, b)
	if strike == nil || !strike.Kept {
		return false, nil
	}
	done, err := p.o.Fuse.Excuse(b, f.now)
	if err != nil {
		return false, fmt.Errorf("excuse %s: %w", b, err)
	}
	return done, nil
}
