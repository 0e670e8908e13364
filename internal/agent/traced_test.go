// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/tracing/otlp"
	"github.com/drover-project/drover/internal/testkit/collector"
)

// TestAnOrderIsATrace: its phases are spans, one after another, and what was done in them.
func TestAnOrderIsATrace(t *testing.T) {
	const secret = "not-for-a-trace"
	t.Setenv(collector.Soon, collector.SoonValue)
	spans, c := collector.Start(t), newCluster(t)
	var err error
	if c.traces, err = (otlp.Options{Endpoint: spans.Endpoint, PerMillion: 1_000_000}).Start(t.Context(), "drover-agent"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.traces.Stop)
	c.start()
	o := order("gadget", &v1beta1.Delivery{ID: "d1", CarrierUID: uidOf("d1")}, params("key="+secret))
	c.order(o)
	c.deliver("d1", gadget)
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	spans.Await(t, func(all []collector.Span) error {
		return inPhases(all, "order load", "delivered", "loaded", "reported")
	})

	c.order(order("gadget", o.Delivery, absent))
	c.until("unload", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
	spans.Await(t, func(all []collector.Span) error { return inPhases(all, "order unload", "unloaded", "reported") })

	all := spans.Spans()
	loaded := collector.Named(all, "loaded")[0]
	for phase, want := range map[string]string{"loaded": "load", "unloaded": "unload", "reported": "PATCH nodemodulesconfigs/status"} {
		if below := collector.Below(all, collector.Named(all, phase)[0]); len(collector.Named(below, want)) != 1 {
			t.Errorf("below %s: %+v, want one %s", phase, below, want)
		}
	}
	if root := collector.Named(all, "order load")[0]; loaded.Trace != root.Trace || root.Attributes["drover.delivery.id"] != "d1" {
		t.Errorf("the order is %+v", root)
	}
	for _, sent := range spans.Raw() {
		if strings.Contains(sent, secret) {
			t.Errorf("a span tells a parameter: %s", sent)
		}
	}
}

// inPhases says what is missing of an order that was done in these phases, which sum to the whole.
func inPhases(all []collector.Span, name string, phases ...string) error {
	orders := collector.Named(all, name)
	if len(orders) != 1 {
		return fmt.Errorf("%d spans of %s", len(orders), name)
	}
	order := orders[0]
	if order.Parent != "" || order.Attributes["drover.object.name"] != "gadget" || order.Attributes["drover.outcome"] != "done" {
		return fmt.Errorf("the order is %+v", order)
	}
	at := order.Start
	for _, phase := range phases {
		found := collector.Named(collector.Below(all, order), phase)
		if len(found) != 1 {
			return fmt.Errorf("%d spans of %s below %s", len(found), phase, name)
		}
		if found[0].Start < at {
			return errors.New(phase + " begins before what was before it ends")
		}
		at = found[0].End
	}
	if at > order.End {
		return errors.New("a phase ends after the order")
	}
	return nil
}
