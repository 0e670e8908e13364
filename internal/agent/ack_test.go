// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// beforeStatus does something before a request to write a status is sent.
type beforeStatus struct {
	http.RoundTripper
	do *atomic.Pointer[func()]
}

func (b beforeStatus) RoundTrip(r *http.Request) (*http.Response, error) {
	if do := b.do.Load(); do != nil && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") {
		(*do)()
	}
	return b.RoundTripper.RoundTrip(r)
}

// TestAnOldAcknowledgementIsNoAnswer: an order to unload comes while the agent still takes back its
// last acknowledgement. The operator finds that, and lets the Module go; so nothing may be loaded.
func TestAnOldAcknowledgementIsNoAnswer(t *testing.T) {
	c := newCluster(t)
	var do atomic.Pointer[func()]
	c.api.Wrap(func(inner http.RoundTripper) http.RoundTripper { return beforeStatus{inner, &do} })
	c.start()
	o := order("gadget", c.deliver("d1", gadget))
	gone := order("gadget", o.Delivery, absent)
	c.order(o)
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.order(gone)
	c.until("unload", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
	again := func() {
		do.Store(nil)
		c.order(gone)
	}
	do.Store(&again)

	c.order(o)

	c.until("take back", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "" })
	c.until("answer again", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
	same(t, "calls", []string{"finit_module gadget", "delete_module gadget"}, c.calls())
}
