// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestWhatIsNotRecordedIsNotCarriedOut: an agent that starts without the API server works from the
// record. Had it carried out newer orders, it would go back to older ones.
func TestWhatIsNotRecordedIsNotCarriedOut(t *testing.T) {
	for name, tc := range map[string]struct {
		// hinder keeps orders from being recorded until what it returns is done.
		hinder func(t *testing.T, c *cluster, asks *atomic.Bool) (help func() error)
		says   string
	}{
		"the-disk-takes-nothing": {hinder: func(t *testing.T, c *cluster, _ *atomic.Bool) func() error {
			name := filepath.Join(c.dir, "state", recordFile)
			if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "in the way"), 0o700)); err != nil {
				t.Fatal(err)
			}
			return func() error { return os.RemoveAll(name) }
		}, says: "the orders cannot be recorded"},
		"the-cluster-is-not-known": {hinder: func(_ *testing.T, c *cluster, asks *atomic.Bool) func() error {
			c.stop()
			asks.Store(false)
			c.start()
			return func() error { asks.Store(true); return nil }
		}, says: "which cluster this is"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			var asks atomic.Bool
			asks.Store(true)
			c.api.Wrap(func(inner http.RoundTripper) http.RoundTripper { return notAsking{inner, &asks} })
			c.start()
			o := order("gadget", c.deliver("d1", gadget))
			c.order(o)
			c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
			help := tc.hinder(t, c, &asks)

			c.order(order("gadget", o.Delivery, absent))

			c.until("say so", func(s *v1beta1.NodeModulesConfigStatus) bool {
				return attempt(s, "gadget") == "Failed AgentFailed" && strings.Contains(s.Attempts[0].Message, tc.says)
			})
			same(t, "calls", []string{"finit_module gadget"}, c.calls())

			if err := help(); err != nil {
				t.Fatal(err)
			}

			c.until("unload", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
			same(t, "calls", []string{"finit_module gadget", "delete_module gadget"}, c.calls())
		})
	}
}

// TestARebootNeedsNoClustersName: orders that are recorded are carried out, although the API server
// does not say which cluster it is. After a power cut of all nodes, it may have no time for that.
func TestARebootNeedsNoClustersName(t *testing.T) {
	c := newCluster(t)
	var asks atomic.Bool
	asks.Store(true)
	c.api.Wrap(func(inner http.RoundTripper) http.RoundTripper { return notAsking{inner, &asks} })
	c.start()
	c.order(order("gadget", c.deliver("d1", gadget)))
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.stop()
	c.host.Reboot("")
	asks.Store(false)

	c.start()

	boot, err := c.host.BootID()
	if err != nil {
		t.Fatal(err)
	}
	c.until("load after the boot", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return len(s.Modules) == 1 && s.Modules[0].BootID == boot && loadedImage(s, "gadget") != ""
	})
}

// TestAnIdleAgentKeepsWhatTheNodeHolds: without its state directory, an agent cannot tell what is
// there. Were it to say "nothing", the operator would send it all again.
func TestAnIdleAgentKeepsWhatTheNodeHolds(t *testing.T) {
	c := newCluster(t)
	c.start()
	d := c.deliver("d1", gadget)
	c.order(order("gadget", d))
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return loadedImage(s, "gadget") != "" && len(s.Artifacts) == 1
	})
	c.stop()
	if err := errors.Join(os.RemoveAll(filepath.Join(c.dir, "state")), os.RemoveAll(filepath.Join(c.dir, "store"))); err != nil {
		t.Fatal(err)
	}
	c.place.Idle = "the state directory cannot be written"

	c.start()
	c.order(order("gadget", d, params("debug=1")))

	c.until("say so", func(s *v1beta1.NodeModulesConfigStatus) bool {
		same(t, "artifacts", 1, len(s.Artifacts))
		return attempt(s, "gadget") == "Failed AgentFailed"
	})
}

// notAsking is an API server that does not say which cluster it is.
type notAsking struct {
	http.RoundTripper
	asks *atomic.Bool
}

func (n notAsking) RoundTrip(r *http.Request) (*http.Response, error) {
	if !n.asks.Load() && strings.Contains(r.URL.Path, "/namespaces/") {
		return nil, errors.New("connection refused")
	}
	return n.RoundTripper.RoundTrip(r)
}
