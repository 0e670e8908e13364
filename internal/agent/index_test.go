// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"testing/fstest"

	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestHostsIndexIsOutOfDate: a dependency that depmod has not heard of yet, or that has moved
// since, is found.
func TestHostsIndexIsOutOfDate(t *testing.T) {
	cases := map[string]string{
		"current": "kernel/drivers/base.ko:\n",
		"older":   "kernel/drivers/other.ko:\n",
		"moved":   "kernel/net/base.ko:\n",
		"none":    "",
	}
	for name, given := range cases {
		t.Run(name, func(t *testing.T) {
			tree := hostTreeOf(synth.Module{Name: "base"})
			tree["modules.dep"] = &fstest.MapFile{Data: []byte(given), Mode: 0o644}
			r := newRig(t, fake.Options{Tree: tree})
			driver := gadget
			driver.Depends = []string{"base"}
			s := r.pass(order("gadget", r.deliver("d1", driver)))
			if _, live := r.host.Live()["base"]; !live || loadedImage(s, "gadget") == "" {
				t.Errorf("attempt %q, calls %v", attempt(s, "gadget"), r.calls())
			}
		})
	}
}
