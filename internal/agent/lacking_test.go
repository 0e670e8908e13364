// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// lackingHost is short of processes when one of its modules is to be loaded.
type lackingHost struct {
	host.Host
	at string
}

func (l lackingHost) Load(ctx context.Context, req host.LoadRequest) error {
	if !strings.Contains(" "+l.at+" ", " "+req.Name+" ") {
		return l.Host.Load(ctx, req)
	}
	return fmt.Errorf("finit_module %s: %w: %w", req.Name, host.ErrNotMade, syscall.EAGAIN)
}

// block puts something in the way of a file of the agent's; free takes it away.
func block(t *testing.T, name string) (free func()) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(name), os.MkdirAll(filepath.Join(name, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatTheAgentLacksIsNotTheBuildsFault: a full disk or a lack of processes at a load says
// nothing about the build. It is not rolled back, and is loaded as soon as the agent can.
func TestWhatTheAgentLacksIsNotTheBuildsFault(t *testing.T) {
	for name, tc := range map[string]struct {
		h      func(host.Host) host.Host
		hinder func(t *testing.T, fuseFile string) (help func())
		says   string
	}{
		"room on the disk": {h: func(h host.Host) host.Host { return h }, hinder: block, says: "note the load of gadget"},
		"a process": {h: func(h host.Host) host.Host { return lackingHost{h, "gadget"} },
			hinder: func(*testing.T, string) func() { return func() {} }, says: "resource temporarily unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			if r.boot(tc.h(r.host), order("widget", r.deliver("d0", synth.Module{Name: "widget"}))) {
				t.Fatal("the node went down")
			}
			help := tc.hinder(t, filepath.Join(r.dir, "fuse", "fuse.json"))
			both := []v1beta1.NodeModuleSpec{order("widget", &v1beta1.Delivery{ID: "d0", CarrierUID: uidOf("d0")}),
				order("gadget", r.deliver("d1", gadget))}

			s := r.pass(both...)

			same(t, "attempt", "Failed AgentFailed", attempt(s, "gadget"))
			if got := s.Attempts[len(s.Attempts)-1].Message; !strings.Contains(got, tc.says) {
				t.Errorf("it says %q", got)
			}
			help()
			r.agent.o.Host = r.host
			s = r.pass(both...)
			same(t, "attempt", "", attempt(s, "gadget"))
			same(t, "live", []string{"gadget", "widget"}, liveNow(r))
		})
	}
}

// TestABuildIDThatIsTooLongIsRefused: the fuse could not tell its build from others. It is the
// image's fault; what works stays. The longest that is read is loaded.
func TestABuildIDThatIsTooLongIsRefused(t *testing.T) {
	r := newRig(t, fake.Options{})
	if r.boot(r.host, order("gadget", r.deliver("d1", gadget))) {
		t.Fatal("the node went down")
	}
	named := func(id string, bytes int) string {
		r.pass(order("gadget", r.deliver(id, synth.Module{Name: "gadget", BuildID: strings.Repeat("ab", bytes)})))
		s := r.pass(order("gadget", &v1beta1.Delivery{ID: id, CarrierUID: uidOf(id)}))
		return attempt(s, "gadget") + "; " + loadedImage(s, "gadget")
	}
	same(t, "too long", "Failed ImageUnreadable; registry.example/gadget:1d1", named("d2", 65))
	same(t, "the longest", "; registry.example/gadget:1d3", named("d3", 64))
}

// TestAFullDiskTakesNothingOut: what comes in the place of a module could not be noted, and so not
// be loaded. What works stays.
func TestAFullDiskTakesNothingOut(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.pass(order("gadget", r.deliver("d1", gadget)))
	next := order("gadget", r.deliver("d2", synth.Module{Name: "gadget", Version: "2"}))
	if err := r.host.Hold("gadget"); err != nil {
		t.Fatal(err)
	}
	same(t, "attempt", "InUse InUse", attempt(r.pass(next), "gadget"))
	free := block(t, filepath.Join(r.dir, "state", journal.File))
	if err := r.host.Unhold("gadget"); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Minute)

	s := r.pass(next)

	same(t, "attempt", "Failed AgentFailed", attempt(s, "gadget"))
	same(t, "live", []string{"gadget"}, liveNow(r))
	free()
	s = r.pass(next)
	same(t, "attempt", "", attempt(s, "gadget"))
	same(t, "live", "registry.example/gadget:1d2", loadedImage(s, "gadget"))
}

// TestModprobeThatIsNotRunIsTriedAgain: its layout has no room, for example.
func TestModprobeThatIsNotRunIsTriedAgain(t *testing.T) {
	r := newRig(t, fake.Options{})
	p := r.probes()
	p.broken = fmt.Errorf("modprobe gadget: %w: %w", host.ErrNotMade, syscall.ENOSPC)
	o := order("gadget", r.deliver("d1", gadget), raw(rawLoad[:3], rawAway))
	same(t, "attempt", "Failed AgentFailed", attempt(r.pass(o), "gadget"))
	p.broken = nil
	same(t, "attempt", "", attempt(r.pass(o), "gadget"))
	same(t, "live", []string{"gadget"}, liveNow(r))
}

// TestALoadWithoutANameIsBegunAgain: where the arguments tell no main module, an agent that ends
// in the middle has noted none.
func TestALoadWithoutANameIsBegunAgain(t *testing.T) {
	for _, came := range []string{"", "gadget"} {
		t.Run("after "+came, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			alias := map[string]string{"pci:v00001234": "gadget"}
			o := order("gadget", r.deliver("d1", gadget), raw([]string{"pci:v00001234"}, []string{"-r", "gadget"}))
			r.restart(&dyingProbe{probes: &probes{Host: r.host, alias: alias}, dieAt: came})
			func() {
				defer func() { _ = recover() }()
				r.pass(o)
				t.Error("the agent survived")
			}()
			r.probes().alias = alias
			s := r.pass(o)
			same(t, "attempt", "", attempt(s, "gadget"))
			same(t, "observed", 1, len(s.Modules))
			same(t, "live", []string{"gadget"}, liveNow(r))
		})
	}
}

// shortStore is short of something when it takes over a delivery.
type shortStore struct {
	execute.Store
	of error
}

func (s shortStore) Import(context.Context, string, types.UID) (string, error) {
	return "", fmt.Errorf("import: %w", s.of)
}

func TestWhatAnImportLacksIsNotTheImagesFault(t *testing.T) {
	for _, of := range []error{syscall.EDQUOT, syscall.EMFILE, syscall.EIO} {
		r := newRig(t, fake.Options{})
		whole := r.agent.o.Store
		r.agent.o.Store = shortStore{whole, of}
		o := order("gadget", r.deliver("d1", gadget))
		same(t, of.Error(), "Failed AgentFailed", attempt(r.pass(o), "gadget"))
		r.agent.o.Store = whole
		r.clock.Step(time.Minute)
		same(t, of.Error(), "", attempt(r.pass(o), "gadget"))
	}
}

// TestARetryThatIsNotNotedCountsNotAgain: its request is carried out once, also where the note of
// it has to be tried again.
func TestARetryThatIsNotNotedCountsNotAgain(t *testing.T) {
	r := newRig(t, fake.Options{})
	bad := crashingHost{Host: r.host, at: "gadget"}
	o := order("gadget", r.deliver("d1", gadget))
	if !r.boot(bad, o) || r.boot(bad, o) {
		t.Fatal("the node went down not once")
	}
	askedAt(&o, 1)
	free := block(t, filepath.Join(r.dir, "state", journal.RetriedFile))
	same(t, "attempt", "Failed AgentFailed", attempt(r.pass(o), "gadget"))
	free()
	func() {
		defer func() { _ = recover() }()
		r.pass(o)
		t.Error("it is not tried again")
	}()
	if r.boot(bad, o) {
		t.Error("it is tried once more for the same request")
	}
}

// TestAStruckBuildStaysKnown: an agent that cannot work says so, and what took the node down as
// well: the operator must not give it to other nodes.
func TestAStruckBuildStaysKnown(t *testing.T) {
	c := newCluster(t)
	c.start()
	d := c.deliver("d1", gadget)
	c.order(order("gadget", d))
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.stop()
	at := metav1.Now().Rfc3339Copy()
	n := &v1beta1.NodeModulesConfig{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: c.node}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Attempts = []v1beta1.NodeModuleAttempt{{
		Namespace: "ns", Name: "gadget", State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonQuarantined, Message: "Not loaded.",
		Strikes: 2, Strike: &v1beta1.Strike{Delivery: "d1", Build: "gadget (build x)", Began: at}, LastTransitionTime: at,
	}}
	if err := c.admin.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	c.host.Reboot("")
	c.place.Idle = "the state directory cannot be written"

	c.start()

	c.until("say so", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return attempt(s, "gadget") == "Failed AgentFailed" && s.Attempts[0].Strikes == 2 && s.Attempts[0].Strike != nil
	})
}
