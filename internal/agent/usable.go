// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
)

// Pauses between two looks at the checks of readyWhen. No event tells of what they look at.
const (
	// usableAgain: what can be used may stop to be so.
	usableAgain = 10 * time.Second
	// unusableSoon and unusableLong bound the pause while a check fails: a tenth of the time that it has.
	unusableSoon = 250 * time.Millisecond
	unusableLong = 5 * time.Second
)

// watched is what the checks of one order said.
type watched struct {
	checks []v1beta1.ReadyCheck
	// failing is the first that did not pass, and is what the status names; none: all passed.
	failing host.Probe
	// since is when they began to fail.
	since time.Time
}

func (w watched) passed() bool { return w.failing == host.Probe{} }

// pause is when to look again.
func (w watched) pause(now time.Time) time.Duration {
	if w.passed() {
		return usableAgain
	}
	return max(unusableSoon, min(now.Sub(w.since)/10, unusableLong))
}

// unusable makes the checks of what is live for an order, and says which of them does not pass. What is live may be of an
// earlier order as long as this one waits: it is ready, or not, by what is asked now.
func (p *pass) unusable(k key, f facts) *report {
	order := p.orders[k]
	if order == nil || order.State == v1beta1.NodeModuleAbsent || len(order.ReadyWhen) == 0 || !f.holds() {
		return nil
	}
	now := watched{checks: order.ReadyWhen, since: f.now}
	if before, ok := p.watched[k]; ok && !before.passed() {
		now.since = before.since
	}
	failing, found := p.failing(order.ReadyWhen)
	now.failing = failing
	p.checked[k] = now
	if now.passed() {
		return nil
	}
	// The headline stays as it is while the check fails: what is there instead may change at any time.
	r := &report{
		State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonNotUsable,
		Message: fmt.Sprintf("Module %s is live, but not ready: readyWhen asks for %s, and the node does not have that.", f.loaded.Main, failing),
	}
	if found != "" {
		r.Message += "\n" + found
	}
	return r
}

// failing is the first check that does not pass; none: all do.
func (a *Agent) failing(checks []v1beta1.ReadyCheck) (failing host.Probe, found string) {
	for i := range checks {
		probe, ok := probeOf(&checks[i])
		if !ok {
			continue
		}
		if ok, found := a.o.Host.Probe(probe); !ok {
			return probe, found
		}
	}
	return host.Probe{}, ""
}

// probeOf is what the node is asked for a check; commands are not for the node.
func probeOf(c *v1beta1.ReadyCheck) (host.Probe, bool) {
	switch {
	case c.DeviceNode != "":
		return host.Probe{DeviceNode: c.DeviceNode}, true
	case c.Sysfs != nil:
		return host.Probe{Sysfs: c.Sysfs.Path, Value: c.Sysfs.Value}, true
	}
	return host.Probe{}, false
}

// checksStand tells whether all checks say what they said: where another one fails now, the status names it.
func (a *Agent) checksStand() bool {
	for _, w := range a.watched {
		if failing, _ := a.failing(w.checks); failing != w.failing {
			return false
		}
	}
	return true
}
