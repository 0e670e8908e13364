// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
)

const (
	turnKernel = "6.1.0"
	turnBoot   = "boot-1"
)

// fleet is a Module with two nodes that have its earlier image live, and hold the one that it asks
// for now.
func fleet() (*v1beta1.Module, []*corev1.Node, *Scene) {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic"}}
	m.Spec.Selector = map[string]string{"nic": ""}
	m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
		Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/nic:2"}},
	}}
	d := desired.New(m)
	now := d.On(turnKernel, "amd64").State
	earlier := now.Config
	earlier.ContainerImage = "r.example/nic:1"
	s := &Scene{Module: m, Desired: d.With(desired.Images{}), Configs: map[string]*v1beta1.NodeModulesConfig{},
		Deliveries: func(string) *reasons.Problem { return nil }}
	var nodes []*corev1.Node
	for _, name := range []string{"a", "b"} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nic": ""}}}
		node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: turnKernel, Architecture: "amd64", OperatingSystem: "linux", BootID: turnBoot}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, &node)
		item := v1beta1.ModuleItem{Namespace: "team", Name: "nic"}
		config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		config.Spec.Modules = []v1beta1.NodeModuleSpec{{ModuleItem: item, Config: earlier, Delivery: &v1beta1.Delivery{ID: "earlier"}}}
		config.Status.Modules = []v1beta1.NodeModuleStatus{{
			ModuleItem: item, Config: &earlier, BootID: turnBoot, Observed: &v1beta1.ObservedModule{Delivery: "earlier"},
		}}
		config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: "earlier"}, {ID: now.Delivery}}
		s.Configs[name] = config
	}
	return m, nodes, s
}

// TestTheStatusSeesTheTurnsThatAreGiven: with one place for two nodes, those who read must come to
// the turn of the controller that gives orders.
func TestTheStatusSeesTheTurnsThatAreGiven(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		given       func(m *v1beta1.Module, nodes []*corev1.Node, s *Scene)
		start       string
		unavailable int
	}{
		"the first one in the line": {func(*v1beta1.Module, []*corev1.Node, *Scene) {}, "a", 0},
		"a node in its grace takes no place": {func(_ *v1beta1.Module, nodes []*corev1.Node, _ *Scene) {
			nodes[0].Labels = nil
		}, "b", 0},
		"a node that is being drained keeps its turn": {func(_ *v1beta1.Module, nodes []*corev1.Node, _ *Scene) {
			nodes[1].Annotations = map[string]string{v1beta1.CordonedAnnotation: "team/nic"}
		}, "b", 0},
		"a node whose image does not come is passed over": {func(_ *v1beta1.Module, _ []*corev1.Node, s *Scene) {
			s.Configs["a"].Status.Artifacts = s.Configs["a"].Status.Artifacts[:1]
			s.Deliveries = func(node string) *reasons.Problem {
				if node == "a" {
					return &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused}
				}
				return nil
			}
		}, "b", 0},
		"a taint that asks for the unload, without a place": {func(_ *v1beta1.Module, nodes []*corev1.Node, s *Scene) {
			s.Taints = placement.UnloadTaints{"upgrade"}
			nodes[0].Spec.Taints = []corev1.Taint{{Key: "upgrade", Effect: corev1.TaintEffectNoSchedule}}
		}, "a", 1},
		"a node with no grace goes at once": {func(m *v1beta1.Module, nodes []*corev1.Node, s *Scene) {
			m.Spec.Rollout = &v1beta1.RolloutSpec{DeselectGracePeriod: &metav1.Duration{}}
			nodes[0].Labels = nil
		}, "a", 1},
	} {
		t.Run(name, func(t *testing.T) {
			m, nodes, s := fleet()
			tc.given(m, nodes, s)
			p := s.Rollout(nodes, now)
			var start []string
			for node := range p.Start {
				start = append(start, node)
			}
			slices.Sort(start)
			if !slices.Equal(start, []string{tc.start}) || p.Unavailable != tc.unavailable {
				t.Errorf("%v begin, %d are unavailable; want %s, %d: %+v", start, p.Unavailable, tc.start, tc.unavailable, p)
			}
		})
	}
}

// TestSeeBelievesNoNumber: who may write a Module's status may write any number there.
func TestSeeBelievesNoNumber(t *testing.T) {
	for _, number := range []int32{-1, 0, 2, 1 << 30} {
		m, nodes, s := fleet()
		m.Status.ModuleLoader.NodesMatchingSelectorNumber = number
		about := Of(m)
		s.See(&about, nodes, time.Now())
		if len(about.Nodes) != 2 || cap(about.Nodes) > 100 {
			t.Errorf("with %d: %d nodes and room for %d, want 2", number, len(about.Nodes), cap(about.Nodes))
		}
	}
}
