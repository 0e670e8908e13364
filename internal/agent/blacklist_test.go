// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/blacklist"
)

func keptOut(s *v1beta1.NodeModuleSpec) { s.BlacklistInTree = true }

// modprobeD gives the node a modprobe.d. It returns what the order's file holds, or "" without one.
func (r *rig) modprobeD() func() string {
	dir := filepath.Join(r.dir, "modprobe.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.agent.o.Blacklist = blacklist.New(dir)
	return func() string {
		r.t.Helper()
		content, err := os.ReadFile(filepath.Join(dir, "drover-ns.gadget.conf"))
		if err != nil && !os.IsNotExist(err) {
			r.t.Fatal(err)
		}
		return string(content)
	}
}

func TestBlacklistFollowsTheOrder(t *testing.T) {
	r := stock(t)
	file := r.modprobeD()
	d := r.deliver("d1", gadget)
	has := func(what string, want bool) {
		t.Helper()
		if got := strings.Contains(file(), "\nblacklist stock\n"); got != want {
			t.Errorf("%s: blacklisted %t, want %t: %q", what, got, want, file())
		}
	}
	wished := order("gadget", d, replacing, keptOut)
	r.pass(order("gadget", d, replacing))
	has("not asked for", false)
	s := r.pass(wished)
	has("asked for", true)
	same(t, "attempt", "", attempt(s, "gadget"))
	if err := os.Remove(filepath.Join(r.dir, "modprobe.d", "drover-ns.gadget.conf")); err != nil {
		t.Fatal(err)
	}
	r.pass(wished)
	has("after somebody removed it", true)
	r.pass()
	has("while no order names what is loaded", true)
	if err := r.host.Hold("gadget"); err != nil {
		t.Fatal(err)
	}
	r.pass(order("gadget", d, replacing, keptOut, absent))
	has("while ours cannot leave", true)
	r.pass(order("gadget", d, replacing))
	has("no more asked for", false)
	r.pass(wished)
	if err := r.host.Unhold("gadget"); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Minute)
	s = r.pass(order("gadget", d, replacing, keptOut, absent))
	same(t, "attempt", "Absent ModuleDeleted", attempt(s, "gadget"))
	has("after ours has left", false)
}

// TestBlacklistThatCannotBe: the module is loaded all the same, and the status says what to do.
func TestBlacklistThatCannotBe(t *testing.T) {
	cases := map[string]struct {
		given func(r *rig)
		then  string
	}{
		"no modprobe.d": {func(*rig) {}, "Failed Unsupported"},
		"a file of that name": {func(r *rig) {
			r.modprobeD()
			r.file(filepath.Join(r.dir, "modprobe.d", "drover-ns.gadget.conf"), []byte("# an administrator's\n"))
		}, "Failed AgentFailed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := stock(t)
			tc.given(r)
			o := order("gadget", r.deliver("d1", gadget), replacing, keptOut)
			s := r.pass(o)
			same(t, "attempt", tc.then, attempt(s, "gadget"))
			same(t, "live", []string{"gadget"}, liveNow(r))
			same(t, "image", o.Config.ContainerImage, loadedImage(s, "gadget"))
			r.pass(o)
			same(t, "writes", 1, r.writes)
		})
	}
}
