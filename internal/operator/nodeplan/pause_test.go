// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// goOnBy are the images of the nodes' orders after one pass; "-" stands for an order to unload.
func goOnBy(m *v1beta1.Module, nodes []Node) (then []string) {
	p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon}
	aims := p.Aims(nodes)
	parts, _ := p.Parts(nodes, aims)
	for i, pl := range p.Make(nodes, aims, rollout.Make(parts, rollout.PolicyOf(m), noon)) {
		order := pl.Step().Write
		if order == nil {
			order = nodes[i].Order
		}
		text := order.Config.ContainerImage
		if order.State == v1beta1.NodeModuleAbsent {
			text = "-"
		}
		if order.Paused {
			text += " paused"
		}
		then = append(then, text)
	}
	return then
}

// TestTheEndOfAPauseLoadsWhatTheModuleSays: a build that was paused because it is bad, and is
// corrected, is not loaded when the pause ends, neither by a node that gets a turn nor by one that
// waits.
func TestTheEndOfAPauseLoadsWhatTheModuleSays(t *testing.T) {
	const withdrawn, asked = "r/nic:0", "r/nic:1"
	for name, tc := range map[string]struct {
		given func(m *v1beta1.Module, nodes []Node)
		// then are the images and pauses of the orders by which the nodes go on.
		then []string
	}{
		"nothing is live": {func(*v1beta1.Module, []Node) {}, []string{asked, withdrawn + " paused"}},
		"nor has the rollout gone on": {func(m *v1beta1.Module, _ []Node) { m.Spec.Rollout.Paused = true },
			[]string{withdrawn + " paused", withdrawn + " paused"}},
		"nor may the new one be loaded": {func(m *v1beta1.Module, _ []Node) {
			m.Spec.ModuleLoader.Container.KernelMappings[0].Literal = "5.4"
			m.Spec.ModuleLoader.Container.KernelMappings[0].Regexp = ""
		}, []string{withdrawn + " paused", withdrawn + " paused"}},
		"it is live": {func(_ *v1beta1.Module, nodes []Node) {
			for i := range nodes {
				lives := behind(t, nodes[i].Name)
				nodes[i].Live, nodes[i].Config.Status.Modules = lives.Live, lives.Config.Status.Modules
			}
		}, []string{asked, withdrawn}},
		"something else is live, and in use": {func(_ *v1beta1.Module, nodes []Node) {
			for i := range nodes {
				lives := behind(t, nodes[i].Name)
				before := *lives.Live.Config
				before.ContainerImage = "r/nic:before"
				lives.Config.Status.Modules[0].Config = &before
				lives.Config.Status.Modules[0].Observed.Delivery = "before"
				nodes[i].Config.Status.Modules = lives.Config.Status.Modules
				nodes[i].Read(key, nodes[i].Config)
			}
		}, []string{asked, "r/nic:before"}},
		"the Module still says so": {func(m *v1beta1.Module, nodes []Node) {
			m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = withdrawn
			id := desired.New(m).On(nodes[0].Node.Status.NodeInfo.KernelVersion, "amd64").State.Delivery
			for i := range nodes {
				nodes[i].Order.Delivery.ID, nodes[i].Config.Status.Artifacts[0].ID = id, id
			}
		}, []string{withdrawn, withdrawn}},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 1}}
			var nodes []Node
			for _, name := range []string{"a", "b"} {
				n := behind(t, name)
				n.Config.Spec.Modules[0].Paused, n.Config.Status.Modules = true, nil
				n.Read(key, n.Config)
				nodes = append(nodes, n)
			}
			tc.given(m, nodes)
			if then := goOnBy(m, nodes); !slices.Equal(then, tc.then) {
				t.Errorf("the nodes go on by %q instead of %q", then, tc.then)
			}
		})
	}
}

// TestWhatStaysIsNotDrained: an order for what is live takes nothing out. It gives back no device,
// and empties no node.
func TestWhatStaysIsNotDrained(t *testing.T) {
	const live, other = "r/nic:before", "r/nic:0"
	for name, tc := range map[string]struct {
		asked  string
		failed bool
		policy v1beta1.UnloadPolicy
	}{
		"the order for another build was corrected during a pause": {asked: "r/nic:1"},
		"it waited for a boot":                  {asked: "r/nic:1", policy: v1beta1.UnloadOnReboot},
		"it is reverted":                        {asked: live},
		"it waited for a boot, and is reverted": {asked: live, policy: v1beta1.UnloadOnReboot},
		"it failed, and is reverted":            {asked: live, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 1}, Drain: v1beta1.DrainNode, Paused: true}
			m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = tc.asked
			m.Spec.ModuleLoader.Container.UnloadPolicy = tc.policy
			nodes := []Node{behind(t, "a"), behind(t, "b")}
			wants := desired.New(m).With(desired.Images{})
			for i := range nodes {
				n := &nodes[i]
				order, has := &n.Config.Spec.Modules[0], &n.Config.Status.Modules[0]
				order.Config.ContainerImage, order.Paused, order.UnloadPolicy = other, !tc.failed, tc.policy
				before := order.Config
				before.ContainerImage = live
				has.Config, has.Observed.Delivery = &before, "before"
				if tc.asked == live {
					has.Observed.Delivery = wants.On(&n.Node.Status.NodeInfo).State.Delivery
				}
				if tc.failed {
					n.Config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: key.Namespace, Name: key.Name, State: v1beta1.AttemptFailed,
						Reason: v1beta1.ReasonLoadFailed}}
				}
				n.Read(key, n.Config)
			}
			p := Pass{Key: key, Module: m, Wants: wants, Devices: Devices{Driver: "nic.example.com"}, Now: noon}
			aims := p.Aims(nodes)
			parts, _ := p.Parts(nodes, aims)
			for i, pl := range p.Make(nodes, aims, rollout.Make(parts, rollout.PolicyOf(m), noon)) {
				order := pl.Delivery.Order
				if order == nil || order.Config.ContainerImage != live || order.State != "" {
					t.Errorf("%s is ordered %+v, want what is live", nodes[i].Name, order)
				}
				if d := pl.Drain; d.Empty || d.Taint || d.First != nil || d.Hold != nil {
					t.Errorf("%s is drained: %+v", nodes[i].Name, d)
				}
			}
		})
	}
}

// TestSelectedAgain: nodes that were told to unload, and have not yet, are selected again with
// another image. They keep what they have until their turns come.
func TestSelectedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(m *v1beta1.Module, nodes []Node)
		// then are the nodes' orders, "-" is the one to unload.
		then []string
	}{
		"at any moment, nothing may be live: they are unavailable": {func(*v1beta1.Module, []Node) {}, []string{"r/nic:1", "r/nic:0"}},
		"during a pause": {func(m *v1beta1.Module, _ []Node) { m.Spec.Rollout.Paused = true }, []string{"r/nic:0", "r/nic:0"}},
		"nothing is live any more": {func(_ *v1beta1.Module, nodes []Node) {
			for i := range nodes {
				nodes[i].Config.Status.Modules = nil
			}
		}, []string{"r/nic:1", "r/nic:1"}},
		"nor during a pause": {func(m *v1beta1.Module, nodes []Node) {
			m.Spec.Rollout.Paused = true
			for i := range nodes {
				nodes[i].Config.Status.Modules = nil
			}
		}, []string{"-", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 1}}
			nodes := []Node{behind(t, "a"), behind(t, "b")}
			for i := range nodes {
				nodes[i].Config.Spec.Modules[0].State = v1beta1.NodeModuleAbsent
			}
			tc.given(m, nodes)
			for i := range nodes {
				nodes[i].Read(key, nodes[i].Config)
			}
			if then := goOnBy(m, nodes); !slices.Equal(then, tc.then) {
				t.Errorf("the nodes go on by %q instead of %q", then, tc.then)
			}
		})
	}
}
