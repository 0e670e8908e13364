// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

// inPod is a process of a pod that holds /dev/gadget0 open.
func inPod(pod string, pid int) host.User {
	return host.User{Kind: host.UserProcess, Name: "worker", PID: pid, Pod: pod, Device: "/dev/gadget0"}
}

func TestUsersAreNamedAndTheirNewsWritten(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.pass(order("gadget", d))
	hold := func(u host.User) {
		t.Helper()
		if err := r.host.HoldBy("gadget", u); err != nil {
			t.Fatal(err)
		}
	}
	gone := order("gadget", d, absent)
	look := func(want string, writes int) {
		t.Helper()
		r.clock.Step(time.Minute)
		s := r.pass(gone)
		same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
		headline, _, _ := strings.Cut(s.Attempts[0].Message, "\n")
		same(t, "headline", "Module gadget is in use by "+want+"; delete or drain those pods first; then it goes on by itself.", headline)
		same(t, "writes", writes, r.writes)
	}
	hold(inPod("team/job", 8))
	look("pod team/job (/dev/gadget0)", 2)
	look("pod team/job (/dev/gadget0)", 2)
	hold(inPod("team/job", 7)) // another process of the pod, another reference count: no news
	look("pod team/job (/dev/gadget0)", 2)
	hold(inPod("team/a", 9))
	look("pod team/a (/dev/gadget0) and pod team/job (/dev/gadget0)", 3)
	for range 3 {
		if err := r.host.Unhold("gadget"); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.Step(time.Minute)
	same(t, "attempt", "Absent ModuleDeleted", attempt(r.pass(gone), "gadget"))
}

func TestUsersOfAnInTreeModuleAreNamed(t *testing.T) {
	r := newRig(t, fake.Options{})
	if err := r.host.Insmod(ko(gadgetV2)); err != nil {
		t.Fatal(err)
	}
	if err := r.host.HoldBy("gadget", inPod("team/job", 8)); err != nil {
		t.Fatal(err)
	}
	s := r.pass(order("gadget", r.deliver("d1", gadget),
		func(s *v1beta1.NodeModuleSpec) { s.Config.InTreeModulesToRemove = []string{"gadget"} }))
	same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
	same(t, "names the pod", true, strings.Contains(s.Attempts[0].Message, "pod team/job"))
}

// blindHost cannot say who uses a module.
type blindHost struct{ host.Host }

func (blindHost) Users(string) ([]host.User, error) { return nil, errors.New("nothing can be seen") }

func TestUsersThatCannotBeSeenStillHold(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	r.restart(blindHost{r.host})
	r.pass(order("gadget", d))
	if err := r.host.Hold("gadget"); err != nil {
		t.Fatal(err)
	}
	s := r.pass(order("gadget", d, absent))
	same(t, "attempt", "InUse InUse", attempt(s, "gadget"))
	same(t, "says so", true, strings.HasSuffix(s.Attempts[0].Message, "\nnot all users are known: nothing can be seen"))
}
