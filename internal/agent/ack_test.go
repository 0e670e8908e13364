// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

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

// TestAnOldAcknowledgementGoesBeforeTheRecord: while it cannot be taken back, an agent that starts
// without the API server must not find the new order, and load what the operator may let go.
func TestAnOldAcknowledgementGoesBeforeTheRecord(t *testing.T) {
	c := newCluster(t)
	var fails atomic.Bool
	var failed atomic.Int64
	c.api.Wrap(func(inner http.RoundTripper) http.RoundTripper { return failingStatus{inner, &fails, &failed} })
	c.start()
	o := order("gadget", c.deliver("d1", gadget))
	c.order(o)
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.order(order("gadget", o.Delivery, absent))
	c.until("unload", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
	fails.Store(true)
	c.order(o)
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return failed.Load() >= 2, nil })
	if err != nil {
		t.Fatal(err)
	}
	c.stop()

	r, err := readRecord(filepath.Join(c.dir, "state"), c.node)

	if err != nil || r == nil || len(r.forBoot(release).Modules) > 0 {
		t.Errorf("the record orders a load: %+v, %v", r, err)
	}
	same(t, "calls", []string{"finit_module gadget", "delete_module gadget"}, c.calls())
}

// failingStatus is an API server to which no status can be written.
type failingStatus struct {
	http.RoundTripper
	fails  *atomic.Bool
	failed *atomic.Int64
}

func (f failingStatus) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.fails.Load() && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") {
		f.failed.Add(1)
		return nil, errors.New("connection refused")
	}
	return f.RoundTripper.RoundTrip(r)
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

	c.wrote("writes to load, to unload, to take that back, and to answer", 4)
	c.until("answer again", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
	same(t, "calls", []string{"finit_module gadget", "delete_module gadget"}, c.calls())
}
