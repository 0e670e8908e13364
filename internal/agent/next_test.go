// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/store"
)

func ids(s *v1beta1.NodeModulesConfigStatus) []string {
	var all []string
	for _, a := range s.Artifacts {
		all = append(all, a.ID)
	}
	return all
}

// TestNextDeliveryComesAheadOfItsOrder, touches nothing, stays, and is what the order then loads.
func TestNextDeliveryComesAheadOfItsOrder(t *testing.T) {
	r := newRig(t, fake.Options{})
	first := order("gadget", r.deliver("d1", gadget))
	r.pass(first)
	waiting := first
	waiting.Next = &v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")}
	same(t, "held before the carrier has it", []string{"d1"}, ids(r.pass(waiting)))
	r.deliver("d2", gadgetV2)
	for range 2 {
		s := r.pass(waiting)
		same(t, "held", []string{"d1", "d2"}, ids(s))
		same(t, "attempt", "", attempt(s, "gadget"))
		same(t, "delivery that is live", "d1", s.Modules[0].Observed.Delivery)
		r.restart(r.host)
	}
	same(t, "calls", []string{"finit_module gadget"}, r.calls())

	second := order("gadget", &v1beta1.Delivery{ID: "d2"})
	s := r.pass(second)
	same(t, "delivery that is live", "d2", s.Modules[0].Observed.Delivery)
	same(t, "build", buildID(t, gadgetV2), r.host.Live()["gadget"])
}

// TestNextDeliveryThatCannotBeUsed is reported, and what is loaded stays.
func TestNextDeliveryThatCannotBeUsed(t *testing.T) {
	r := newRig(t, fake.Options{})
	first := order("gadget", r.deliver("d1", gadget))
	r.pass(first)
	dir, err := store.OutputDir(uidOf("d2"))
	if err != nil {
		t.Fatal(err)
	}
	r.file(r.dir+"/pods/"+dir+"/manifest.json", []byte("no manifest"))
	first.Next = &v1beta1.Delivery{ID: "d2", CarrierUID: uidOf("d2")}
	for range 2 {
		s := r.pass(first)
		same(t, "attempt", "Failed DeliveryRefused", attempt(s, "gadget"))
		same(t, "live", first.Config.ContainerImage, loadedImage(s, "gadget"))
	}
	first.Next = nil
	same(t, "attempt without it", "", attempt(r.pass(first), "gadget"))
	same(t, "calls", []string{"finit_module gadget"}, r.calls())
}
