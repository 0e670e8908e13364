// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/shared/kube"
)

// at is a time in seconds after noon.
func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func TestTimelineOf(t *testing.T) {
	server := func(phase string, s int) moment { return moment{phase, at(s), ClockServer} }
	node := func(phase string, s int) moment { return moment{phase, at(s), ClockNode} }
	for name, tc := range map[string]struct {
		given []moment
		open  []string
		want  string // phase +seconds, "2" for two clocks, "!" for skewed; = whole, and what is next
	}{
		"nothing":            {want: "= 0"},
		"only the start":     {given: []moment{server("a", 5)}, want: "a +0 = 0"},
		"one clock":          {given: []moment{server("a", 0), server("b", 3), server("c", 10)}, want: "a +0, b +3, c +7 = 10"},
		"two clocks":         {given: []moment{server("a", 0), node("b", 3), node("c", 10)}, want: "a +0, b +3 2, c +7 = 10 2"},
		"there and back":     {given: []moment{server("a", 0), node("b", 3), server("c", 10)}, want: "a +0, b +3 2, c +7 2 = 10"},
		"one is not known":   {given: []moment{server("a", 0), {phase: "b"}, server("c", 10)}, want: "a +0, c +10 = 10"},
		"one is to come":     {given: []moment{server("a", 0), {phase: "b"}, {phase: "c"}}, open: []string{"c"}, want: "a +0 = 0 next c"},
		"the node is behind": {given: []moment{server("a", 10), node("b", 3), node("c", 12)}, want: "a +0, b +0 2!, c +2 = 2 2"},
		"at the end, too":    {given: []moment{server("a", 10), node("b", 3), node("c", 4)}, want: "a +0, b +0 2!, c +0! = 0 2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := timelineOf(tc.given, tc.open)
			var phases []string
			sum := 0.0
			for _, p := range got.Phases {
				sum += p.Seconds
				phases = append(phases, fmt.Sprintf("%s +%.0f%s%s", p.Phase, p.Seconds, mark2(p.TwoClocks, " 2"), mark2(p.Skewed, "!")))
			}
			text := strings.TrimSpace(fmt.Sprintf("%s = %.0f%s%s", strings.Join(phases, ", "), got.Seconds, mark2(got.TwoClocks, " 2"),
				mark2(got.Next != "", " next "+got.Next)))
			if text != tc.want {
				t.Errorf("%q, want %q", text, tc.want)
			}
			if math.Abs(sum-got.Seconds) > 1e-9 {
				t.Errorf("the phases sum to %f, and the whole is %f", sum, got.Seconds)
			}
		})
	}
}

func mark2(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// ordersAt notes when the operator wrote the Module's order.
func ordersAt(c *v1beta1.NodeModulesConfig, owner string, seconds int) {
	when := metav1.NewTime(at(seconds))
	c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{Manager: owner, Time: &when})
}

// livesAt sets when the agent began to load, and when it was live.
func (w *world) livesAt(c *v1beta1.NodeModulesConfig, began, live int) {
	w.live(c)
	began1 := metav1.NewTime(at(began))
	c.Status.Modules[0].LastTransitionTime, c.Status.Modules[0].Observed.LoadBegan = metav1.NewTime(at(live)), &began1
}

// pluginPod is a pod of the plugin with the times of its phases.
func (w *world) pluginPod(node string, created, waited, started, ready int) {
	time := func(s int) metav1.Time { return metav1.NewTime(at(s)) }
	w.Pods = append(w.Pods, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: fmt.Sprintf("nic-%d", created), CreationTimestamp: time(created),
			Labels: map[string]string{v1beta1.RoleLabel: v1beta1.RoleDevicePlugin, v1beta1.ModuleNameLabel: "nic"}},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: waitContainer,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: time(waited)}}}},
			ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: time(started)}},
			}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: time(ready)}},
		},
	})
}

// TestTimeline shows what is printed from a node's objects.
func TestTimeline(t *testing.T) {
	owner := orderOwner + "drivers/nic"
	registered := func(s int) func(*corev1.Node) {
		return func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(at(s)) }
	}
	ready := func(s int) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at(s)) }
	}
	withPlugin := func(m *v1beta1.Module) { m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{} }
	cases := map[string]func(*world){
		"whole": func(w *world) {
			c := w.node("hollow-1", registered(0), ready(20))
			ordersAt(c, owner, 30)
			w.livesAt(c, 42, 43)
			w.pluginPod("hollow-1", 44, 50, 51, 55)
			w.pluginPod("hollow-0", 1, 2, 3, 4)
		},
		"module-comes-later": func(w *world) {
			w.m.CreationTimestamp = metav1.NewTime(at(100))
			w.livesAt(w.node("hollow-1", registered(0)), 142, 143)
		},
		"another-module-was-ordered": func(w *world) {
			c := w.node("hollow-1", registered(0))
			ordersAt(c, orderOwner+"drivers/gpu", 30)
			w.livesAt(c, 42, 43)
		},
		"after-a-reboot": func(w *world) {
			c := w.node("hollow-1", registered(0), ready(500))
			ordersAt(c, owner, 30)
			w.livesAt(c, 510, 512)
		},
		"order-changed-since": func(w *world) {
			c := w.node("hollow-1", registered(0))
			ordersAt(c, owner, 300)
			w.livesAt(c, 42, 43)
		},
		"on-its-way": func(w *world) {
			c := w.node("hollow-1", registered(0))
			ordersAt(c, owner, 30)
			w.order(c)
		},
		"clocks-differ": func(w *world) {
			c := w.node("hollow-1", registered(100))
			ordersAt(c, owner, 130)
			w.livesAt(c, 142, 143)
			w.pluginPod("hollow-1", 140, 150, 151, 155)
		},
	}
	for name, arrange := range cases {
		t.Run(name, func(t *testing.T) {
			w := given(t, module(withPlugin))
			arrange(w)
			line := subjectOf(&w.View, w.m, &w.Nodes[0]).timeline()
			golden(t, "timeline-"+name, line.render(paint.Painter{}))
		})
	}
}

// TestNamesOfOthers: what the operator calls its orders and its init container is what is looked
// for.
func TestNamesOfOthers(t *testing.T) {
	if diff := cmp.Diff(string(kube.ModuleOwner("drivers", "nic")), orderOwner+"drivers/nic"); diff != "" {
		t.Error(diff)
	}
	m := module(func(m *v1beta1.Module) { m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{} })
	set, err := plugin.DaemonSet(m, "agent")
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Spec.Template.Spec.InitContainers; len(got) == 0 || got[0].Name != waitContainer {
		t.Errorf("init containers %+v, want %s", got, waitContainer)
	}
}
