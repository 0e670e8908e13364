// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"

	"k8s.io/klog/v2/ktesting"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

// stoppingHost tells its agent to stop while the kernel is at work.
type stoppingHost struct {
	*fake.Host
	stop func()
}

func (h stoppingHost) Load(ctx context.Context, r host.LoadRequest) error {
	h.stop()
	return h.Host.Load(ctx, r)
}

func (h stoppingHost) Unload(ctx context.Context, r host.UnloadRequest) error {
	h.stop()
	return h.Host.Unload(ctx, r)
}

// TestStopsBetweenCalls: an agent that is told to stop finishes the call that it is in and begins
// no other. The next one goes on.
func TestStopsBetweenCalls(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", busCore, stacked)
	for _, step := range []struct {
		order  v1beta1.NodeModuleSpec
		stop   []string // in the kernel after the agent was told to stop
		finish []string // and after the next agent
	}{
		{order: order("gadget", d), stop: []string{"bus_core"}, finish: bothLive},
		{order: order("gadget", d, absent), stop: []string{"bus_core"}},
	} {
		_, ctx := ktesting.NewTestContext(t)
		ctx, stop := context.WithCancel(ctx)
		r.restart(stoppingHost{Host: r.host, stop: stop})
		p, err := r.agent.newPass(v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{step.order}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.settle(ctx); err != nil {
			t.Fatal(err)
		}
		same(t, "live when it stops", step.stop, liveNow(r))
		r.restart(r.host)
		s := r.pass(step.order)
		same(t, "live at last", step.finish, liveNow(r))
		if step.finish != nil {
			same(t, "attempt", "", attempt(s, "gadget"))
		}
	}
}
