// SPDX-License-Identifier: Apache-2.0

package module

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
	"github.com/drover-project/drover/internal/rollout"
)

// behind is a node that has the Module's earlier image live, and holds the one that it asks for now.
func behind(t *testing.T, name string) view {
	t.Helper()
	v := emptyView()
	v.name, v.node.Name, v.node.UID, v.config.Name = name, name, types.UID("uid-"+name), name
	v.node.Status.NodeInfo.Architecture, v.node.Status.NodeInfo.BootID = "amd64", "boot"
	v.config.OwnerReferences[0].UID = v.node.UID
	now := wish(t)
	earlier := *now
	earlier.Config.ContainerImage, earlier.Delivery = "r/nic:0", &v1beta1.Delivery{ID: "earlier"}
	v.config.Spec.Modules = []v1beta1.NodeModuleSpec{earlier}
	v.config.Status.Modules = []v1beta1.NodeModuleStatus{{
		ModuleItem: earlier.ModuleItem, Config: &earlier.Config, BootID: "boot", Observed: &v1beta1.ObservedModule{Delivery: "earlier"},
		LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	v.config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: "earlier"}, {ID: now.Delivery.ID}}
	v.addConfig(types.NamespacedName{Namespace: "team", Name: "nic"}, v.config)
	return v
}

// TestWhatANodeKeepsProvesNothing: the first node has to prove the change itself. One that keeps its earlier build has not.
func TestWhatANodeKeepsProvesNothing(t *testing.T) {
	for name, keep := range map[string]func(v *view){
		"nothing":                         func(*view) {},
		"paused":                          func(v *view) { v.node.Annotations = map[string]string{v1beta1.PausedAnnotation: "true"} },
		"its kernel has lost its mapping": func(v *view) { v.node.Status.NodeInfo.KernelVersion = "6.1.0-99-amd64" },
	} {
		t.Run(name, func(t *testing.T) {
			m := given()
			m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 3}}
			var views []view
			for _, node := range []string{"a", "b", "c", "d"} {
				views = append(views, behind(t, node))
			}
			keep(&views[0])
			pl := &planner{
				snap:    &snapshot{key: types.NamespacedName{Namespace: "team", Name: "nic"}, module: m, nodes: views},
				options: &Options{AgentImage: "agent:1", DeliveryMode: delivery.ModeImageVolume}, desired: desired.New(m).With(desired.Images{}),
				resting: func(string, string, time.Time) bool { return false }, drained: func(string) wait { return wait{} },
				seen: &rollout.Sightings{}, now: noon, unwanted: map[types.UID]time.Time{}, stillUnwanted: map[types.UID]time.Time{},
			}
			pl.aims()
			if start := slices.Sorted(maps.Keys(pl.rollout.Start)); len(start) != 1 || !pl.rollout.Trial {
				t.Errorf("%v begin: %+v", start, pl.rollout)
			}
		})
	}
}
