// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/plan"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestTurns: a new image on a fleet that has the one before, under all sorts of spec.rollout.
func TestTurns(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	module := &v1beta1.Module{}
	module.Namespace, module.Name = namespace, "nic"
	module.Spec = v1beta1.ModuleSpec{
		Selector: map[string]string{namespace: "yes"},
		ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic"},
			KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "registry.example.com/nic:1"}},
		}},
	}
	if err := admin.Create(t.Context(), module); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 5)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", namespace, i)
		serving(t, e, module, names[i], i != 4)
	}
	five := strings.NewReplacer("n0", names[0], "n1", names[1], "n2", names[2], "n3", names[3], "n4", names[4])
	seconds := metav1.Duration{Duration: 30e9}
	cases := map[string]struct {
		rollout *v1beta1.RolloutSpec
		version string
		says    string
		steps   [][]string
	}{
		"careful": {
			rollout: &v1beta1.RolloutSpec{MaxUnavailable: &intstr.IntOrString{IntVal: 3}, Soak: &seconds, Drain: v1beta1.DrainNode},
			says: `
ROLLOUT      at most 3 of 5 nodes unavailable (maxUnavailable 3), 1 already unavailable
             one node first; each must be live for 30s before its place is free; a failed node stops the rest; each is emptied first
             step 1: n0
             step 2: n1, n2
             step 3: n3
             not until something changes: n4
               the node is not Ready
`,
			steps: [][]string{{names[0]}, names[1:3], {names[3]}},
		},
		"paused": {
			rollout: &v1beta1.RolloutSpec{Paused: true, MaxUnavailable: &intstr.IntOrString{Type: intstr.String, StrVal: "50%"}},
			says: `
ROLLOUT      at most 2 of 5 nodes unavailable (maxUnavailable 50%), 1 already unavailable
             one node first; a failed node stops the rest
             not until something changes: n0, n1, n2, n3, n4
               spec.rollout.paused is set
`,
		},
		"without spec.rollout": {
			says: `
ROLLOUT      at most 1 of 5 nodes unavailable (maxUnavailable 10%), 1 already unavailable
             not until something changes: n0, n1, n2, n3
               no more nodes may be unavailable
             not until something changes: n4
               the node is not Ready
`,
		},
		"by labels": {version: "2", says: "\nROLLOUT      by node labels: spec.moduleLoader.container.version is set and spec.rollout is not\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			next := &v1beta1.Module{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "Module"}}
			next.Namespace, next.Name, next.Spec = namespace, "nic", *module.Spec.DeepCopy()
			next.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "registry.example.com/nic:2"
			if tc.version != "" {
				next.Name, next.Spec.ModuleLoader.Container.Version = "versioned", tc.version // a Module that exists keeps having one, or none
			}
			next.Spec.Rollout = tc.rollout
			text, err := json.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "module.yaml")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			out, code := clitest.Run(t, e.AdminConfig(), namespace, plan.NewCommand, "-f", file)
			if want := five.Replace(tc.says); code != 0 || !strings.Contains(out, want) {
				t.Errorf("it ends with %d, and does not say:\n%s\nbut:\n%s", code, want, out)
			}
			out, _ = clitest.Run(t, e.AdminConfig(), namespace, plan.NewCommand, "-f", file, "-o", "json")
			var p plan.Plan
			if err := json.Unmarshal([]byte(out), &p); err != nil || p.Rollout == nil {
				t.Fatalf("%v in:\n%s", err, out)
			}
			if diff := cmp.Diff(tc.steps, p.Rollout.Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// serving makes a node that has what the Module asks for live.
func serving(t *testing.T, e *env.Env, m *v1beta1.Module, name string, ready bool) {
	t.Helper()
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{m.Namespace: "yes"}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KernelVersion: "6.1.0-44-amd64", BootID: "boot-1", OperatingSystem: "linux"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		},
	}
	a := desired.New(m).On(node.Status.NodeInfo.KernelVersion, node.Status.NodeInfo.Architecture)
	if a.State == nil {
		t.Fatal(a.Err)
	}
	item := v1beta1.ModuleItem{Namespace: m.Namespace, Name: m.Name}
	config := &v1beta1.NodeModulesConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{{
			ModuleItem: item, Config: a.State.Config, Delivery: &v1beta1.Delivery{ID: a.State.Delivery},
		}}},
	}
	admin := e.Admin(t)
	for _, object := range []client.Object{node, config} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(t.Context(), object) })
	}
	empty := config.DeepCopy()
	config.Status = v1beta1.NodeModulesConfigStatus{Modules: []v1beta1.NodeModuleStatus{{
		ModuleItem: item, Config: &a.State.Config, BootID: "boot-1", LastTransitionTime: metav1.Now(),
		Observed: &v1beta1.ObservedModule{Delivery: a.State.Delivery},
	}}}
	if err := e.Client(t, e.AgentConfig(t, name)).Status().Patch(t.Context(), config, client.MergeFrom(empty)); err != nil {
		t.Fatal(err)
	}
}
