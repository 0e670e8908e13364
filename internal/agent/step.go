// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Stepper takes the place of [Agent.Run], one step at a time: for simulations, which have one clock
// and say what happens next.
type Stepper struct{ *Agent }

// Begin is what the loop does first.
func (s Stepper) Begin() { s.started = s.o.Clock.Now() }

// Look is one round of the loop. It returns how long the loop would wait for a hint.
func (s Stepper) Look(ctx context.Context) (time.Duration, error) { return s.look(ctx) }

// Glance is a round without a hint: where nothing has changed since the last look, it does nothing
// but look at the kernel's modules.
func (s Stepper) Glance(ctx context.Context) (time.Duration, error) {
	if s.undisturbed() {
		return s.glance(), nil
	}
	return s.look(ctx)
}

// Show is what the watch does: the API server has this object, or none (nil).
func (s Stepper) Show(o *v1beta1.NodeModulesConfig) {
	var all []any
	if o != nil {
		all = append(all, o.DeepCopy())
	}
	s.latest.set(all)
	select {
	case <-s.latest.changed: // a loop would be woken by it
	default:
	}
}
