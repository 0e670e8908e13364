// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// TestAnotherOperatorsReportStays: labels and device plugins hang on what KMM has reported. It
// stays as it is until the agent has seen for itself, and goes with the first thing against it.
func TestAnotherOperatorsReportStays(t *testing.T) {
	undelivered := func(s *v1beta1.NodeModuleSpec) {
		s.Delivery = &v1beta1.Delivery{ID: "later", CarrierUID: uidOf("later")}
	}
	for name, test := range map[string]struct {
		live   *synth.Module
		report func(*v1beta1.NodeModuleStatus)
		order  func(*v1beta1.NodeModuleSpec)
		stays  bool
	}{
		"before the delivery": {live: &gadget, order: undelivered, stays: true},
		"while another operator's order stands": {
			live: &gadget, order: func(s *v1beta1.NodeModuleSpec) { s.Delivery = nil }, stays: true,
		},
		"paused": {
			live: &gadget, order: func(s *v1beta1.NodeModuleSpec) { undelivered(s); s.Paused = true }, stays: true,
		},
		"the module is gone": {order: undelivered},
		"from an earlier boot": {
			live: &gadget, order: undelivered, report: func(s *v1beta1.NodeModuleStatus) { s.BootID = "before" },
		},
		"of another module": {
			live: &gadget, order: undelivered, report: func(s *v1beta1.NodeModuleStatus) { s.Config.Modprobe.ModuleName = "other" },
		},
		"another build than was delivered": {live: &synth.Module{Name: "gadget", Version: "other"}},
		"it has to go":                     {live: &gadget, order: absent},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			if test.live != nil {
				same(t, "insmod", nil, r.host.Insmod(ko(*test.live)))
			}
			o := order("gadget", r.deliver("d1", gadget))
			boot, err := r.host.BootID()
			same(t, "boot ID", nil, err)
			report := v1beta1.NodeModuleStatus{
				ModuleItem: o.ModuleItem, Config: o.Config.DeepCopy(), BootID: boot,
				LastTransitionTime: metav1.NewTime(r.clock.Now().Add(-time.Hour)),
			}
			if test.report != nil {
				test.report(&report)
			}
			if test.order != nil {
				test.order(&o)
			}
			r.last.Modules = []v1beta1.NodeModuleStatus{report}
			s := r.pass(o)
			if test.stays {
				same(t, "report", []v1beta1.NodeModuleStatus{report}, s.Modules)
				same(t, "report of a second look", []v1beta1.NodeModuleStatus{report}, r.pass(o).Modules)
			} else {
				same(t, "reports", 0, len(s.Modules))
			}
		})
	}
}

// TestAnotherOperatorsModuleIsAdopted: from the first look to the last, one report or the other
// stands, and the kernel is not asked for anything.
func TestAnotherOperatorsModuleIsAdopted(t *testing.T) {
	r := newRig(t, fake.Options{})
	same(t, "insmod", nil, r.host.Insmod(ko(gadget)))
	boot, err := r.host.BootID()
	same(t, "boot ID", nil, err)
	o := order("gadget", &v1beta1.Delivery{ID: "d1", CarrierUID: uidOf("d1")})
	r.last.Modules = []v1beta1.NodeModuleStatus{{ModuleItem: o.ModuleItem, Config: o.Config.DeepCopy(), BootID: boot}}
	s := r.pass(o)
	same(t, "live before the delivery", o.Config.ContainerImage, loadedImage(s, "gadget"))
	r.deliver("d1", gadget)
	s = r.pass(o)
	same(t, "live after it", o.Config.ContainerImage, loadedImage(s, "gadget"))
	if seen := s.Modules[0].Observed; seen == nil || !seen.Adopted || seen.BuildID != buildID(t, gadget) {
		t.Errorf("observed: %+v", seen)
	}
	same(t, "calls", []string{"insmod gadget"}, r.calls())
}
