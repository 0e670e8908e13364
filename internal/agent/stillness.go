// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"time"

	"github.com/drover-project/drover/internal/agent/host"
)

// restFor is how long the names and states of the modules in the kernel are enough to look at, while there is nothing to do. What else may
// change (another build under the same name of which no event told, content that was damaged on disk) is seen after it. What readyWhen
// asks for is looked at each time.
const restFor = time.Minute

// stillness is what the kernel held when nothing was left to do.
type stillness struct {
	modules map[string]host.State
	until   time.Time
}

// lieDown notes what the kernel holds if nothing is left to do but to look again.
func (a *Agent) lieDown(p *pass, idle bool) {
	a.still = nil
	if !idle || p.present == nil {
		return
	}
	for _, o := range p.orders {
		if o.BlacklistInTree {
			return // its file on the host is looked at each time
		}
	}
	a.still = &stillness{modules: maps.Clone(p.present), until: a.o.Clock.Now().Add(restFor)}
}

// undisturbed tells whether a look can be left out: nothing was to be done, and the kernel holds what it held.
func (a *Agent) undisturbed() bool {
	if a.still == nil || !a.o.Clock.Now().Before(a.still.until) {
		return false
	}
	present, err := a.o.Host.Modules()
	return err == nil && maps.Equal(present, a.still.modules) && a.checksStand()
}
