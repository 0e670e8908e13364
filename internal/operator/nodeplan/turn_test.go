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
