// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/watchdog"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// slowHost is one where reads and kernel calls take as long as during says.
type slowHost struct {
	host.Host
	during func(what string)
}

func (h slowHost) Module(name string) (host.Module, bool, error) {
	h.during("read of " + name)
	return h.Host.Module(name)
}

func (h slowHost) Load(ctx context.Context, r host.LoadRequest) error {
	h.during("load of " + r.Name)
	return h.Host.Load(ctx, r)
}

func (h slowHost) Unload(ctx context.Context, r host.UnloadRequest) error {
	h.during("unload of " + r.Name)
	return h.Host.Unload(ctx, r)
}

// recorded makes a rig whose agent finds these orders in its record. Its API server is away.
func recorded(t *testing.T, during func(what string), specs func(*rig) []v1beta1.NodeModuleSpec) (*rig, *watchdog.Watchdog) {
	t.Helper()
	r := newRig(t, fake.Options{})
	w := &recorder{dir: filepath.Join(r.dir, "state")}
	if err := w.write(record{ClusterUID: "c", NodeName: r.node, Spec: v1beta1.NodeModulesConfigSpec{Modules: specs(r)}}); err != nil {
		t.Fatal(err)
	}
	r.restart(slowHost{r.host, during})
	dog := watchdog.New(time.Minute)
	r.agent.o.Watchdog = dog
	return r, dog
}

// hung looks at the loop until it is found hung, at most n times.
func hung(dog *watchdog.Watchdog, n int) error {
	for range n {
		if err := dog.Look(); err != nil {
			return err
		}
	}
	return nil
}

// run starts the agent's loop and returns what is called to step its clock until done.
func (r *rig) run() (until func(done <-chan string) string, stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx) }()
	until = func(done <-chan string) string {
		for {
			select {
			case what := <-done:
				return what
			case err := <-ended:
				r.t.Fatalf("the agent ended with %v", err)
			default:
				r.clock.Step(time.Second)
			}
		}
	}
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the agent ended with %v", err)
		}
	}
	return until, stop
}

// TestAPassThatHangsIsNoticed, and an agent that waits for an event is not taken for one.
func TestAPassThatHangsIsNoticed(t *testing.T) {
	for _, at := range []string{"load of gadget", "read of gadget"} {
		t.Run(at, func(t *testing.T) {
			begun, answer := make(chan string), make(chan struct{})
			hangs := func(what string) {
				if what != at {
					return
				}
				select {
				case <-answer:
				case begun <- what:
					<-answer
				}
			}
			r, dog := recorded(t, hangs, func(r *rig) []v1beta1.NodeModuleSpec {
				o := order("gadget", r.deliver("d1", gadget))
				r.pass(o) // imports it, and loads it
				if at == "load of gadget" {
					r.host.Reboot("")
				}
				return []v1beta1.NodeModuleSpec{o}
			})
			until, stop := r.run()
			until(begun)
			err := hung(dog, 20)
			if found := new(watchdog.HungError); !errors.As(err, &found) || !strings.Contains(found.Doing, "ns/gadget") {
				t.Errorf("%v; want a hung step of ns/gadget", err)
			}
			close(answer)
			err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true,
				func(context.Context) (bool, error) { return hung(dog, 100) == nil, nil })
			if err != nil {
				t.Error("the loop is never at rest")
			}
			stop()
			if err := hung(dog, 100); err != nil {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// TestSlowKernelCallsAreNoHang: each takes as long as it may, and a pass that makes several longer
// than a step may.
func TestSlowKernelCallsAreNoHang(t *testing.T) {
	var dog *watchdog.Watchdog
	var slow []string
	loaded := make(chan string, 10)
	lasts := func(what string) {
		if dog == nil || strings.HasPrefix(what, "read") {
			return
		}
		slow = append(slow, what)
		if err := hung(dog, 10); err != nil {
			t.Errorf("in the %s: %v", what, err)
		}
		if what == "load of gadget" {
			loaded <- what
		}
	}
	r, dog2 := recorded(t, lasts, func(r *rig) []v1beta1.NodeModuleSpec {
		r.pass(order("gadget", r.deliver("d1", gadget)))
		next := gadgetV2
		next.Depends = []string{"core"}
		return []v1beta1.NodeModuleSpec{order("gadget", r.deliver("d2", next, synth.Module{Name: "core"}))}
	})
	dog = dog2
	until, stop := r.run()
	until(loaded)
	stop()
	same(t, "slow calls", []string{"unload of gadget", "load of core", "load of gadget"}, slow)
}
