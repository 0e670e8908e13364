// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/desired"
)

var update = flag.Bool("update", false, "write what is printed to testdata")

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

const oldKernel, newKernel = "5.10.0-32-amd64", "6.1.0-44-amd64"

func module(changes ...func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: "nic", Generation: 1},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"nic": "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{
					{Literal: "6.6.6", ContainerImage: "registry.example.com/nic:beast"},
					{Regexp: `^6\.`, ContainerImage: "registry.example.com/nic:2-${KERNEL_FULL_VERSION}"},
				},
			}},
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

// world is a fleet of nodes in various states.
type world struct {
	*testing.T
	cluster.View
	m *v1beta1.Module
}

func given(t *testing.T, m *v1beta1.Module) *world {
	return &world{T: t, m: m, View: cluster.View{Now: noon, NodesSeen: true, ConfigsSeen: true, PodsSeen: true,
		Configs: map[string]*v1beta1.NodeModulesConfig{}}}
}

func (w *world) node(name string, changes ...func(*corev1.Node)) *v1beta1.NodeModulesConfig {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nic": "yes"}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KernelVersion: newKernel, BootID: "b0071d00-0000-4000-8000-000000000001", OperatingSystem: "linux"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, change := range changes {
		change(&n)
	}
	w.Nodes = append(w.Nodes, n)
	w.Configs[name] = &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return w.Configs[name]
}

func (w *world) order(c *v1beta1.NodeModulesConfig) *v1beta1.NodeModuleSpec {
	w.Helper()
	ask := desired.New(w.m).On(newKernel, "amd64").State
	c.Spec.Modules = []v1beta1.NodeModuleSpec{{
		ModuleItem: v1beta1.ModuleItem{Namespace: "drivers", Name: "nic"}, Config: ask.Config, Delivery: &v1beta1.Delivery{ID: ask.Delivery},
	}}
	return &c.Spec.Modules[0]
}

func (w *world) held(c *v1beta1.NodeModulesConfig) {
	c.Status.Artifacts = []v1beta1.NodeArtifact{{ID: w.order(c).Delivery.ID, Digest: "5ca1ab1e5ca1ab1e5ca1ab1e"}}
}

func (w *world) live(c *v1beta1.NodeModulesConfig) {
	w.held(c)
	c.Status.Modules = []v1beta1.NodeModuleStatus{{
		ModuleItem: c.Spec.Modules[0].ModuleItem, Config: ptr.To(c.Spec.Modules[0].Config), BootID: "b0071d00-0000-4000-8000-000000000001",
		LastTransitionTime: metav1.NewTime(noon.Add(-90 * time.Minute)),
		Observed:           &v1beta1.ObservedModule{BuildID: "c0ffeec0ffeec0ffeec0ffee", Taint: "OE"},
	}}
}

func (w *world) failed(c *v1beta1.NodeModulesConfig, state v1beta1.AttemptState, reason, message string) {
	retry := metav1.NewTime(noon.Add(40 * time.Second))
	c.Status.Attempts = []v1beta1.NodeModuleAttempt{{
		Namespace: "drivers", Name: "nic", State: state, Reason: reason, Message: message, Attempt: 3, NextRetry: &retry,
	}}
}

func (w *world) carrier(node, reason, message string) {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "drivers", Name: "drover-carrier-1", CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
			Labels: map[string]string{v1beta1.CarrierLabel: "", v1beta1.ModuleNameLabel: "nic"},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
	if reason != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
	w.Pods = append(w.Pods, pod)
}

// refused is what the operator has written of a node.
func (w *world) refused(node string) {
	w.m.Status.Problems = append(w.m.Status.Problems, v1beta1.ModuleProblem{
		Part: v1beta1.ProblemDeliveries, Node: node, Reason: v1beta1.ReasonDeliveryRefused, Message: "exceeded quota",
	})
}

// agent is the pod of the node's agent.
func (w *world) agent(status corev1.PodStatus) {
	w.AgentsSeen = true
	w.Agents = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drover-system", Name: "drover-agent-x",
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}, Status: status,
	}}
}

func (w *world) explain(node int) string {
	s := subjectOf(&w.View, w.m, &w.Nodes[node])
	if s.waits() {
		s.seeRollout(&w.View)
	}
	t := s.trace()
	return t.render(paint.Painter{}, w.Missing)
}

const refusal = "The kernel refused nic (EKEYREJECTED): it trusts no key that signed it.\nLoading of module with unavailable key " +
	"is rejected"

// TestOneNode shows what is printed of a node in each state that people ask about.
func TestOneNode(t *testing.T) {
	cases := map[string]func(*world){
		"live": func(w *world) {
			w.live(w.node("hollow-1", func(n *corev1.Node) { n.Labels[v1beta1.ReadyLabel("drivers", "nic")] = "" }))
		},
		"no-mapping": func(w *world) {
			w.node("hollow-1", func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = oldKernel })
		},
		"baked-unanswered": func(w *world) {
			c := w.node("hollow-1")
			w.Nodes[0].Labels[v1beta1.BakedLabel(w.order(c).Delivery.ID)] = ""
		},
		"image-not-found": func(w *world) {
			w.order(w.node("hollow-1"))
			w.carrier("hollow-1", "ErrImagePull", "registry.example.com/nic:2-6.1.0-44-amd64: not found")
		},
		"signature-rejected": func(w *world) {
			c := w.node("hollow-1")
			w.held(c)
			w.failed(c, v1beta1.AttemptFailed, v1beta1.ReasonSignatureRejected, refusal)
		},
		"overdue": func(w *world) {
			c := w.node("hollow-1")
			w.held(c)
			w.failed(c, v1beta1.AttemptFailed, v1beta1.ReasonSignatureRejected, refusal)
			c.Status.Attempts[0].NextRetry = &metav1.Time{Time: noon.Add(-4 * time.Minute)}
		},
		"in-use": func(w *world) {
			c := w.node("hollow-1")
			w.live(c)
			w.order(c).Config.ContainerImage = "registry.example.com/nic:2-" + newKernel
			c.Status.Modules[0].Config.ContainerImage = "registry.example.com/nic:1-" + newKernel
			w.failed(c, v1beta1.AttemptInUse, v1beta1.ReasonInUse, "Module nic is in use by pod shop/web-1 (process 4711); stop it.")
		},
		"drifted": func(w *world) {
			c := w.node("hollow-1", func(n *corev1.Node) { n.Labels[v1beta1.ReadyLabel("drivers", "nic")] = "" })
			w.live(c)
			c.Status.Modules[0].Observed.Repairs, c.Status.Modules[0].Observed.LastRepair = 3, &metav1.Time{Time: noon.Add(-2 * time.Minute)}
			c.Status.Attempts = []v1beta1.NodeModuleAttempt{{
				Namespace: "drivers", Name: "nic", State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonDrifted,
				Message: "Module nic goes out of the kernel although it is wanted; it is loaded again. Find out what unloads it.",
			}}
		},
		"carrier-refused-beside-others": func(w *world) {
			w.node("hollow-1")
			w.refused("hollow-1")
			w.refused("hollow-2")
		},
		"carrier-refused-unnamed": func(w *world) {
			w.node("hollow-1")
			w.refused("hollow-0")
			w.refused(v1beta1.OtherNodes)
		},
		"first-load-waits": func(w *world) {
			w.m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"nic"}
			w.node("hollow-1")
			w.order(w.node("hollow-2"))
		},
		"rollout-paused": func(w *world) {
			w.m.Spec.Rollout = &v1beta1.RolloutSpec{Paused: true}
			c := w.node("hollow-1")
			w.live(c)
			w.order(c).Delivery.ID = "earlier"
			c.Spec.Modules[0].Config.ContainerImage = "registry.example.com/nic:1-" + newKernel
			c.Status.Modules[0].Config = &c.Spec.Modules[0].Config
		},
		"policy-denied": func(w *world) {
			w.node("hollow-1")
			w.m.Status.Problems = append(w.m.Status.Problems, v1beta1.ModuleProblem{
				Part: v1beta1.ProblemDeliveries, Node: "hollow-1", Reason: v1beta1.ReasonPolicyDenied,
				Message: "spec.moduleLoader.container.modprobe: ModulePolicy drivers does not allow the kernel module \"nic\"",
			})
		},
		"carrier-fails-behind-a-failure": func(w *world) {
			c := w.node("hollow-1")
			w.order(c)
			w.failed(c, v1beta1.AttemptFailed, v1beta1.ReasonRolledBack, "The new build failed, and the previous one serves again.")
			w.carrier("hollow-1", "ErrImagePull", "registry.example.com/nic:2-6.1.0-44-amd64: not found")
		},
		"agent-crashes": func(w *world) {
			w.order(w.node("hollow-1"))
			w.agent(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "agent", RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
					Message: "back-off 40s"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error",
					Message: "open the state directory: read-only file system"}},
			}}})
		},
		"peer-active": func(w *world) {
			w.node("hollow-1")
			w.m.Status.Conditions = []metav1.Condition{{
				Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonPeerActive,
				Message: "KMM is at work (lease kmm.sigs.x-k8s.io)",
			}}
		},
		"version-label": func(w *world) {
			w.m.Spec.ModuleLoader.Container.Version = "2"
			w.node("hollow-1", func(n *corev1.Node) { n.Labels["kmm.node.kubernetes.io/version-module.drivers.nic"] = "1" })
		},
		"not-selected": func(w *world) {
			w.node("hollow-1", func(n *corev1.Node) { n.Labels["nic"] = "no" })
		},
		"tainted-later": func(w *world) {
			w.live(w.node("hollow-1", tainted))
		},
		"tainted": func(w *world) {
			c := w.node("hollow-1", tainted)
			w.live(c)
			c.Spec.Modules[0].State, c.Spec.Modules[0].Reason = v1beta1.NodeModuleAbsent, v1beta1.ReasonTainted
		},
		"tainted-out": func(w *world) {
			w.node("hollow-1", tainted)
			w.order(w.node("hollow-2", tainted)).Reason = v1beta1.ReasonTainted
		},
		"untolerated": func(w *world) {
			w.node("hollow-1", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}}
			})
		},
	}
	for name, arrange := range cases {
		t.Run(name, func(t *testing.T) {
			w := given(t, module())
			arrange(w)
			golden(t, "node-"+name, w.explain(0))
		})
	}
}

// TestAllNodes shows what is printed of a fleet, and of one whose nodes the user may not see.
func TestAllNodes(t *testing.T) {
	w := given(t, module())
	for _, name := range []string{"hollow-0", "hollow-1", "hollow-2", "hollow-3", "hollow-4", "hollow-5", "hollow-6"} {
		w.live(w.node(name))
	}
	for _, name := range []string{"hollow-7", "hollow-8"} {
		c := w.node(name)
		w.held(c)
		w.failed(c, v1beta1.AttemptFailed, v1beta1.ReasonSignatureRejected, refusal)
	}
	w.order(w.node("hollow-9"))
	w.node("old-1", func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = oldKernel })
	w.node("db-1", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}}
	})

	f := fleet(&w.View, w.m)
	golden(t, "fleet", f.render(paint.Painter{}, w.m))

	w.m.Status = v1beta1.ModuleStatus{
		ObservedGeneration: 1, ModuleLoader: v1beta1.DaemonSetStatus{DesiredNumber: 10, AvailableNumber: 7},
		Conditions: []metav1.Condition{{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonSignatureRejected,
			Message: "Live on 7 of 10 nodes; SignatureRejected on hollow-7, hollow-8: The kernel refused nic (EKEYREJECTED)",
		}},
	}
	f = blind(w.m, []cluster.Missing{{Right: "get, list on nodes (cluster-wide)", Shows: "which nodes are meant", Role: cluster.ViewerRole}})
	golden(t, "fleet-blind", f.render(paint.Painter{}, w.m))
}

func tainted(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "example.com/upgrade", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it):\n%s", file, diff)
	}
}
