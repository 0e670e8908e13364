// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
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
