// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// fleet is a rollout that a failure has halted: a has failed with what is asked for, b and c serve
// the earlier build, and d has just come.
type fleet struct {
	module *v1beta1.Module
	nodes  map[string]*Node
}

func halted(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{module: given(), nodes: map[string]*Node{}}
	f.module.Spec.Rollout = &v1beta1.RolloutSpec{}
	for _, name := range []string{"a", "b", "c"} {
		n := behind(t, name)
		f.nodes[name] = &n
	}
	failed := f.nodes["a"]
	failed.Config.Spec.Modules = []v1beta1.NodeModuleSpec{*aimed(t)}
	failed.Config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: v1beta1.AttemptFailed,
		Reason: v1beta1.ReasonRolledBack}}
	d := emptyNode()
	d.Name, d.Node.Name, d.Node.UID, d.Config = "d", "d", "uid-d", nil
	d.Node.Status.NodeInfo = failed.Node.Status.NodeInfo
	f.nodes["d"] = &d
	return f
}

// step is what is done for d.
func (f *fleet) step(t *testing.T) (Step, *Plan) {
	t.Helper()
	p := Pass{Key: key, Module: f.module, Wants: desired.New(f.module).With(desired.Images{}), Now: noon,
		Carriers: Carriers{Image: "agent:1", Mode: delivery.ModeImageVolume},
		Memory:   Memory{Carriers: map[types.UID]Sight{"ours": {Created: true, Since: noon}}}}
	var nodes []Node
	for _, name := range []string{"a", "b", "c", "d"} {
		n := *f.nodes[name]
		if n.Config != nil {
			n.Read(key, n.Config)
		}
		nodes = append(nodes, n)
	}
	aims := p.Aims(nodes)
	parts, _ := p.Parts(nodes, aims)
	plans := p.Make(nodes, aims, rollout.Make(parts, rollout.PolicyOf(f.module), noon))
	for i := range plans[:3] {
		if s := plans[i].Step(); i > 0 && (s.Write != nil && s.Write.Config.ContainerImage != "r/nic:0" || s.Remove) {
			t.Errorf("node %s is changed: %+v", plans[i].Node.Name, s.Write)
		}
	}
	first := plans[3].Step()
	if first.Create == nil {
		return first, &plans[3]
	}
	// A node that waited for a slot is planned again, alone.
	woken := Plan{Key: key, Node: plans[3].Node, Rest: &Rest{}}
	p.Wake(&woken)
	if again := woken.Step(); again.Create == nil || again.Create.ID != first.Create.ID {
		t.Errorf("with a slot, it is brought %+v instead of %+v", again.Create, first.Create)
	}
	return first, &plans[3]
}

// TestANewNodeGetsNoHaltedBuild where others serve an earlier one: it is brought that, has it
// loaded, and then waits with the others.
func TestANewNodeGetsNoHaltedBuild(t *testing.T) {
	f := halted(t)
	s, _ := f.step(t)
	if s.Create == nil || s.Create.ID != "earlier" || s.Create.Config.ContainerImage != "r/nic:0" ||
		s.Write == nil || s.Write.Delivery.ID != "earlier" || s.Write.Config.ContainerImage != "r/nic:0" {
		t.Fatalf("creates %+v, writes %+v", s.Create, s.Write)
	}

	d := f.nodes["d"]
	order := *s.Write
	order.Delivery = &v1beta1.Delivery{ID: "earlier", CarrierUID: "ours"}
	d.Config = &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "config-d",
		OwnerReferences: []metav1.OwnerReference{{UID: "uid-d"}}}}
	d.Config.Labels = map[string]string{v1beta1.ConfiguredLabel("team", "nic"): "", v1beta1.InUseLabel("team", "nic"): ""}
	d.Config.Spec.Modules = []v1beta1.NodeModuleSpec{order}
	d.Carriers = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: delivery.CarrierName("team", "nic", "d", "earlier"), UID: "ours"}}}
	if s, _ = f.step(t); !s.Idle() {
		t.Errorf("while the image comes, it discards %v, creates %+v, writes %+v", s.Discard, s.Create, s.Write)
	}

	d.Config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: "earlier"}}
	if s, _ = f.step(t); s.Create != nil || s.Write != nil && s.Write.Config.ContainerImage != "r/nic:0" {
		t.Errorf("when the image is there, it creates %+v, writes %+v", s.Create, s.Write)
	}
	d.Carriers = nil
	d.Config.Status.Modules = []v1beta1.NodeModuleStatus{{
		ModuleItem: order.ModuleItem, Config: &order.Config, BootID: "boot", Observed: &v1beta1.ObservedModule{Delivery: "earlier"},
		LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	s, pl := f.step(t)
	if s.Create != nil || s.Write != nil && s.Write.Config.ContainerImage != "r/nic:0" || !pl.Turn.Waits {
		t.Errorf("when it is live, it creates %+v, writes %+v, waits: %v", s.Create, s.Write, pl.Turn.Waits)
	}
}

// TestAPauseHaltsABuildForNewNodes as a failure does, and a node that has booted another kernel
// gets the build that serves there.
func TestAPauseHaltsABuildForNewNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fleet)
		then   string
	}{
		"where an earlier build serves": {func(*fleet) {}, "r/nic:0"},
		"after a boot": {func(f *fleet) {
			d := f.nodes["d"]
			old := *aimed(t)
			old.Config.KernelVersion = "5.4"
			d.Config = &v1beta1.NodeModulesConfig{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{old}}}
		}, "r/nic:0"},
		"where none does": {func(f *fleet) {
			for _, name := range []string{"b", "c"} {
				f.nodes[name].Config.Status.Modules = nil
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := halted(t)
			f.nodes["a"].Config.Status.Attempts = nil
			f.module.Spec.Rollout.Paused = true
			tc.change(f)
			s, pl := f.step(t)
			image := ""
			if s.Create != nil {
				image = s.Create.Config.ContainerImage
			}
			if image != tc.then || tc.then == "" && (s.Write != nil || !pl.Turn.Waits) {
				t.Errorf("it is brought %q, want %q; writes %+v", image, tc.then, s.Write)
			}
		})
	}
}

// TestANewNodeGetsWhatIsAskedFor where the rollout goes on, or no earlier build is known for it.
func TestANewNodeGetsWhatIsAskedFor(t *testing.T) {
	never := false
	for name, change := range map[string]func(*fleet){
		"nothing has failed":    func(f *fleet) { f.nodes["a"].Config.Status.Attempts = nil },
		"failures halt nothing": func(f *fleet) { f.module.Spec.Rollout.PauseOnFailure = &never },
		"without a rollout":     func(f *fleet) { f.module.Spec.Rollout = nil },
		"another processor":     func(f *fleet) { f.nodes["d"].Node.Status.NodeInfo.Architecture = "arm64" },
		"another kernel":        func(f *fleet) { f.nodes["d"].Node.Status.NodeInfo.KernelVersion = "6.1.0-99-amd64" },
		"the others have just rebooted": func(f *fleet) {
			for _, name := range []string{"b", "c"} {
				f.nodes[name].Node.Status.NodeInfo.BootID = "next"
			}
		},
		"an image of the same name": func(f *fleet) {
			for _, name := range []string{"b", "c"} {
				n := f.nodes[name]
				n.Config.Spec.Modules[0].Config.ContainerImage = "r/nic:1"
				n.Config.Status.Modules[0].Config = &n.Config.Spec.Modules[0].Config
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := halted(t)
			f.module.Spec.ModuleLoader.Container.KernelMappings = []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: "r/nic:1"}}
			change(f)
			if s, _ := f.step(t); s.Create == nil || s.Create.Config.ContainerImage != "r/nic:1" {
				t.Errorf("creates %+v", s.Create)
			}
		})
	}
}
