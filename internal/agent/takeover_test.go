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

// TestAnotherOperatorsBuildsStay: a name in inTreeModulesToRemove does not unload what is the build
// that the order would load, of the main module or of one that it needs.
func TestAnotherOperatorsBuildsStay(t *testing.T) {
	core, driver := synth.Module{Name: "bus_core"}, synth.Module{Name: "gadget", Depends: []string{"bus_core"}}
	for name, test := range map[string]struct {
		live  synth.Module
		calls []string
	}{
		"the builds of the order": {core, []string{"insmod bus_core", "insmod gadget"}},
		"another build of what it needs": {
			synth.Module{Name: "bus_core", Version: "other"},
			[]string{"insmod bus_core", "insmod gadget", "delete_module bus_core EAGAIN"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			same(t, "insmod", nil, r.host.Insmod(ko(test.live)))
			same(t, "insmod", nil, r.host.Insmod(ko(driver)))
			boot, err := r.host.BootID()
			same(t, "boot ID", nil, err)
			o := order("gadget", r.deliver("d1", driver, core), func(s *v1beta1.NodeModuleSpec) {
				s.Config.InTreeModulesToRemove = []string{"gadget", "bus_core"}
			})
			r.last.Modules = []v1beta1.NodeModuleStatus{{ModuleItem: o.ModuleItem, Config: o.Config.DeepCopy(), BootID: boot}}
			s := r.pass(o)
			same(t, "calls", test.calls, r.calls())
			same(t, "image", o.Config.ContainerImage, loadedImage(s, "gadget"))
		})
	}
}

// TestAnotherOperatorsReportStaysUnderATryThatFails: firmware that cannot be placed changes nothing
// in the kernel, and so nothing in what another operator has reported of it.
func TestAnotherOperatorsReportStaysUnderATryThatFails(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.stage()
	first, o := r.blob("alpha", "d1", "one"), r.blob("beta", "d2", "two")
	r.pass(first)
	same(t, "insmod", nil, r.host.Insmod(ko(synth.Module{Name: "beta"})))
	boot, err := r.host.BootID()
	same(t, "boot ID", nil, err)
	r.last.Modules = append(r.last.Modules, v1beta1.NodeModuleStatus{ModuleItem: o.ModuleItem, Config: o.Config.DeepCopy(), BootID: boot})
	for _, look := range []string{"first", "second"} {
		s := r.pass(first, o)
		same(t, look+" attempt", "Failed FirmwareConflict", attempt(s, "beta"))
		same(t, look+" report", o.Config.ContainerImage, loadedImage(s, "beta"))
	}
}
