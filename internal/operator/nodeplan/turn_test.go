// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// behind is a node that has the Module's earlier image live, and holds the one that it asks for
// now.
func behind(t *testing.T, name string) Node {
	t.Helper()
	n := emptyNode()
	n.Name, n.Node.Name, n.Node.UID, n.Config.Name = name, name, types.UID("uid-"+name), name
	n.Node.Status.NodeInfo.Architecture, n.Node.Status.NodeInfo.BootID = "amd64", "boot"
	n.Config.OwnerReferences[0].UID = n.Node.UID
	now := aimed(t)
	earlier := *now
	earlier.Config.ContainerImage, earlier.Delivery = "r/nic:0", &v1beta1.Delivery{ID: "earlier"}
	n.Config.Spec.Modules = []v1beta1.NodeModuleSpec{earlier}
	n.Config.Status.Modules = []v1beta1.NodeModuleStatus{{
		ModuleItem: earlier.ModuleItem, Config: &earlier.Config, BootID: "boot", Observed: &v1beta1.ObservedModule{Delivery: "earlier"},
		LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	n.Config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: "earlier"}, {ID: now.Delivery.ID}}
	n.Read(key, n.Config)
	return n
}

// TestWhatANodeKeepsProvesNothing: the first node has to prove the change itself. One that keeps
// its earlier build has not.
func TestWhatANodeKeepsProvesNothing(t *testing.T) {
	for name, keep := range map[string]func(n *Node){
		"nothing":                         func(*Node) {},
		"paused":                          func(n *Node) { n.Node.Annotations = map[string]string{v1beta1.PausedAnnotation: "true"} },
		"its kernel has lost its mapping": func(n *Node) { n.Node.Status.NodeInfo.KernelVersion = "6.1.0-99-amd64" },
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 3}}
			var nodes []Node
			for _, name := range []string{"a", "b", "c", "d"} {
				nodes = append(nodes, behind(t, name))
			}
			keep(&nodes[0])
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon}
			var aims []Aim
			for i := range nodes {
				aims = append(aims, p.Aim(&nodes[i]))
			}
			parts, _ := p.Parts(nodes, aims)
			r := rollout.Make(parts, rollout.PolicyOf(m), noon)
			if start := slices.Sorted(maps.Keys(r.Start)); len(start) != 1 || !r.Trial {
				t.Errorf("%v begin: %+v", start, r)
			}
		})
	}
}

// TestASlipUnloadsNothing: an edit after which no node is to have the kernel module may be a slip.
// However it is made, the nodes are asked for a confirmation, and go a few at a time.
func TestASlipUnloadsNothing(t *testing.T) {
	for name, edit := range map[string]func(*v1beta1.Module){
		"moduleLoader": func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil },
		"selector":     func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{"nic": "no"} },
		"mappings": func(m *v1beta1.Module) {
			m.Spec.ModuleLoader.Container.KernelMappings = []v1beta1.KernelMapping{{Literal: "5.4", ContainerImage: "r/nic:1"}}
		},
	} {
		for _, more := range []struct {
			name       string
			policy     *v1beta1.RolloutSpec
			waited     time.Duration
			confirmed  bool
			start, ask int
		}{
			{"in the grace", nil, 0, false, 0, 4},
			{"after the grace", nil, time.Hour, false, 0, 4},
			{"confirmed", nil, time.Hour, true, 4, 0},
			{"as many as may go", &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 4}}, time.Hour, false, 4, 0},
		} {
			t.Run(name+" "+more.name, func(t *testing.T) {
				m := given()
				edit(m)
				m.Spec.Rollout = more.policy
				if more.confirmed {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.ConfirmDeselectionAnnotation, noon.Format(time.RFC3339))
				}
				p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon}
				p.Memory.Unwanted = map[types.UID]time.Time{}
				var nodes []Node
				for _, name := range []string{"a", "b", "c", "d"} {
					n := behind(t, name)
					p.Memory.Unwanted[n.Node.UID] = noon.Add(-more.waited)
					nodes = append(nodes, n)
				}
				parts, _ := p.Parts(nodes, p.Aims(nodes))
				r := rollout.Make(parts, rollout.PolicyOf(m), noon)
				if len(r.Start) != more.start || len(r.Mass) != more.ask {
					t.Errorf("%d begin to unload and %d wait for a confirmation, instead of %d and %d: %+v",
						len(r.Start), len(r.Mass), more.start, more.ask, r)
				}
			})
		}
	}
}

// TestWhoLeavesOnRebootWaitsForATurn: nodes that would have changed with their next boot, whenever
// that comes, change now: one at a time, as by any other edit.
func TestWhoLeavesOnRebootWaitsForATurn(t *testing.T) {
	for name, tc := range map[string]struct {
		// ordered says that the nodes' orders, for the next boot, name what the Module asks for.
		ordered bool
		// failed: a node has booted with it, and runs what it had.
		failed bool
		// rebuilt: what is live came by another delivery, and is else what is asked for.
		rebuilt bool
		policy  v1beta1.UnloadPolicy
		then    int
	}{
		"the same image, and now, which failed elsewhere": {ordered: true, failed: true, policy: v1beta1.UnloadWait},
		"another image, and now":                          {policy: v1beta1.UnloadWait, then: 1},
		"the same image, and now":                         {ordered: true, policy: v1beta1.UnloadWait, then: 1},
		"another image, and by default":                   {then: 1},
		"the same image, and by default":                  {ordered: true, then: 1},
		"an image rebuilt under its name, and now":        {rebuilt: true, policy: v1beta1.UnloadWait, then: 1},
		"another image, at a boot":                        {policy: v1beta1.UnloadOnReboot, then: 4},
		"the same image, at a boot":                       {ordered: true, policy: v1beta1.UnloadOnReboot, then: 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 1}}
			var nodes []Node
			for _, name := range []string{"a", "b", "c", "d"} {
				n := behind(t, name)
				order := &n.Config.Spec.Modules[0]
				if tc.ordered || tc.rebuilt {
					*order = *aimed(t)
				}
				if tc.rebuilt {
					n.Config.Status.Modules[0].Config = &aimed(t).Config
				}
				order.UnloadPolicy = v1beta1.UnloadOnReboot
				if tc.failed && name == "b" {
					n.Config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: key.Namespace, Name: key.Name,
						State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed}}
				}
				n.Read(key, n.Config)
				nodes = append(nodes, n)
			}
			m.Spec.ModuleLoader.Container.UnloadPolicy = tc.policy
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon}
			aims := p.Aims(nodes)
			parts, _ := p.Parts(nodes, aims)
			changed := 0
			for i, pl := range p.Make(nodes, aims, rollout.Make(parts, rollout.PolicyOf(m), noon)) {
				order := pl.Step().Write
				if order == nil || tc.failed && nodes[i].Name == "b" {
					continue
				}
				was := nodes[i].Order
				if order.UnloadPolicy != was.UnloadPolicy || order.Config.ContainerImage != was.Config.ContainerImage {
					changed++
				}
				if tc.policy != v1beta1.UnloadOnReboot && order.UnloadPolicy != v1beta1.UnloadOnReboot && !nodes[i].disturbs(order) {
					t.Errorf("%s changes now, and is not drained for it", nodes[i].Name)
				}
			}
			if changed != tc.then {
				t.Errorf("%d nodes get another order, instead of %d", changed, tc.then)
			}
		})
	}
}

// TestWhatLostItsOrderWaitsForATurn: when nodes lose their NodeModulesConfigs, their agents report
// anew what is live, which no order names. It is claimed as it is, and changes like any other.
func TestWhatLostItsOrderWaitsForATurn(t *testing.T) {
	for name, tc := range map[string]struct {
		// asked: what the Module asks for is live.
		asked  bool
		edit   func(*v1beta1.Module, []Node)
		claims int
		asks   int
	}{
		"another build":             {claims: 3, asks: 1},
		"the same":                  {asked: true, asks: 4},
		"another, at the next boot": {edit: onReboot, asks: 4},
		"another, at the next boot, while the rollout is paused": {
			edit: func(m *v1beta1.Module, _ []Node) {
				onReboot(m, nil)
				m.Spec.Rollout.Paused = true
			}, claims: 4},
		"another, while the rollout is paused": {edit: func(m *v1beta1.Module, _ []Node) { m.Spec.Rollout.Paused = true },
			claims: 4},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 1}}
			if tc.edit != nil {
				tc.edit(m, nil)
			}
			var nodes []Node
			for _, name := range []string{"a", "b", "c", "d"} {
				n := behind(t, name)
				n.Config.Spec.Modules = nil
				if tc.asked {
					n.Live.Config, n.Live.Observed.Delivery = &aimed(t).Config, aimed(t).Delivery.ID
				}
				n.Read(key, n.Config)
				nodes = append(nodes, n)
			}
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon}
			aims := p.Aims(nodes)
			parts, _ := p.Parts(nodes, aims)
			claims, asks := 0, 0
			for i, pl := range p.Make(nodes, aims, rollout.Make(parts, rollout.PolicyOf(m), noon)) {
				switch order := pl.Step().Write; {
				case order == nil:
					t.Errorf("%s gets no order", nodes[i].Name)
				case order.Delivery.ID == aimed(t).Delivery.ID:
					asks++
				case rollout.SameBuild(&order.Config, nodes[i].Live.Config) && order.Delivery.ID == "earlier" &&
					order.UnloadPolicy == m.Spec.ModuleLoader.Container.UnloadPolicy:
					claims++
				}
			}
			if claims != tc.claims || asks != tc.asks {
				t.Errorf("%d are claimed and %d get what is asked for, instead of %d and %d", claims, asks, tc.claims, tc.asks)
			}
		})
	}
}

func onReboot(m *v1beta1.Module, _ []Node) {
	m.Spec.ModuleLoader.Container.UnloadPolicy = v1beta1.UnloadOnReboot
}

// TestAFirstLoadMayTakeSomethingOut: where it takes in-tree modules out, it waits for its turn as a
// change does, unless pods cannot be on the node yet.
func TestAFirstLoadMayTakeSomethingOut(t *testing.T) {
	const taint = "team.startup.drover.dev/nic"
	inTree := func(m *v1beta1.Module, _ []Node) {
		m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"nic"}
	}
	for name, tc := range map[string]struct {
		given func(*v1beta1.Module, []Node)
		then  int
	}{
		"nothing":         {func(*v1beta1.Module, []Node) {}, 4},
		"in-tree modules": {inTree, 1},
		"by the older field": {func(m *v1beta1.Module, _ []Node) {
			m.Spec.ModuleLoader.Container.InTreeModuleToRemove = "nic"
		}, 1},
		"in-tree modules, while the rollout is paused": {func(m *v1beta1.Module, nodes []Node) {
			inTree(m, nodes)
			m.Spec.Rollout.Paused = true
		}, 0},
		"in-tree modules, with the next boot": {func(m *v1beta1.Module, nodes []Node) {
			inTree(m, nodes)
			onReboot(m, nodes)
		}, 4},
		"in-tree modules of new nodes": {func(m *v1beta1.Module, nodes []Node) {
			inTree(m, nodes)
			m.Spec.StartupTaint = taint
			for i := range nodes[:2] {
				nodes[i].Node.Spec.Taints = []corev1.Taint{{Key: taint, Effect: corev1.TaintEffectNoSchedule}}
			}
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 1}, Drain: v1beta1.DrainNode}
			var nodes []Node
			for _, name := range []string{"a", "b", "c", "d"} {
				n := behind(t, name)
				n.Config.Spec.Modules, n.Config.Status = nil, v1beta1.NodeModulesConfigStatus{}
				n.Read(key, n.Config)
				nodes = append(nodes, n)
			}
			tc.given(m, nodes)
			p := Pass{Key: key, Module: m, Wants: desired.New(m).With(desired.Images{}), Now: noon,
				Carriers: Carriers{Image: "agent:1", Mode: delivery.ModeImageVolume}}
			aims := p.Aims(nodes)
			parts, _ := p.Parts(nodes, aims)
			begun := 0
			for i, pl := range p.Make(nodes, aims, rollout.Make(parts, rollout.PolicyOf(m), noon)) {
				s := pl.Step()
				if (s.Create != nil) != (s.Write != nil) {
					t.Errorf("%s: creates %+v, writes %+v", nodes[i].Name, s.Create, s.Write)
				}
				if s.Create == nil {
					continue
				}
				begun++
				if pl.Drain.Empty != parts[i].First {
					t.Errorf("%s is emptied before: %v, loses something: %v", nodes[i].Name, pl.Drain.Empty, parts[i].First)
				}
			}
			if begun != tc.then {
				t.Errorf("%d begin instead of %d", begun, tc.then)
			}
		})
	}
}
