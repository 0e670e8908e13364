// SPDX-License-Identifier: Apache-2.0

package desired_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/rollout"
)

const running = "6.1.0"

func module(mappings ...v1beta1.KernelMapping) *v1beta1.Module {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic"}}
	m.Spec.Selector = map[string]string{"nic": ""}
	m.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
		Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"}, KernelMappings: mappings,
	}}
	return m
}

var (
	mapped  = v1beta1.KernelMapping{Regexp: "^6", ContainerImage: "r.example/nic:2"}
	broken  = v1beta1.KernelMapping{Regexp: "(", ContainerImage: "r.example/nic:2"}
	foreign = v1beta1.KernelMapping{Regexp: "^5", ContainerImage: "r.example/nic:2"}
	built   = v1beta1.KernelMapping{Regexp: "^6", ContainerImage: "r.example/nic:2",
		Build: &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}}}
)

// TestPart: a node that keeps what it has, for whatever reason, takes no turn and is no proof of
// what is rolled out.
func TestPart(t *testing.T) {
	for name, tc := range map[string]struct {
		module *v1beta1.Module
		taints placement.UnloadTaints
		makes  bool
		given  func(node *corev1.Node, f *rollout.Facts)
		none   bool
		stage  rollout.Stage
		paused bool
		later  bool
	}{
		"has an earlier image":        {module: module(mapped), stage: rollout.Behind},
		"has nothing":                 {module: module(mapped), given: nothing, stage: rollout.Fresh},
		"waits for its image":         {module: module(built), makes: true, stage: rollout.Behind, paused: true},
		"its image is not made here":  {module: module(built), stage: rollout.Behind},
		"has nothing, and waits":      {module: module(built), makes: true, given: nothing, stage: rollout.Fresh, paused: true},
		"the mappings are broken":     {module: module(broken), stage: rollout.Behind, paused: true},
		"broken, and has nothing":     {module: module(broken), given: nothing, none: true},
		"broken, and unloads":         {module: module(broken), given: unloads, stage: rollout.Fresh, paused: true},
		"no mapping matches any more": {module: module(foreign), stage: rollout.Leaving},
		"no mapping matches":          {module: module(foreign), given: nothing, none: true},
		"no mapping, and unloads":     {module: module(foreign), given: unloads, stage: rollout.Going},
		"deselected":                  {module: module(mapped), given: deselected, stage: rollout.Leaving},
		"deselected a moment ago": {module: module(mapped), given: func(node *corev1.Node, f *rollout.Facts) {
			deselected(node, f)
			f.Later = true
		}, stage: rollout.Leaving, later: true},
		"a taint":                  {module: module(mapped), given: tainted, stage: rollout.Behind},
		"a taint asks for it":      {module: module(mapped), taints: asking, given: tainted, stage: rollout.Leaving},
		"asks, and is carried out": {module: module(mapped), taints: asking, given: both(tainted, unloads), stage: rollout.Going},
		"has asked for it":         {module: module(mapped), taints: asking, given: both(tainted, nothing), stage: rollout.Out},
		"asks, where no mapping matches": {
			module: module(foreign), taints: asking, given: both(tainted, nothing), none: true,
		},
		"asks, and has another taint, too": {
			module: module(mapped), taints: placement.UnloadTaints{"other"}, given: both(tainted, nothing), none: true,
		},
		"asks a moment after it was deselected": {module: module(mapped), taints: asking, given: func(node *corev1.Node, f *rollout.Facts) {
			tainted(node, f)
			f.Later = true
		}, stage: rollout.Leaving},
		"not selected": {module: module(mapped), given: func(node *corev1.Node, f *rollout.Facts) {
			deselected(node, f)
			nothing(node, f)
		}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"nic": ""}}}
			node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: running, Architecture: "amd64", OperatingSystem: "linux"}
			config := desired.New(module(mapped)).On(running, "amd64").State.Config
			config.ContainerImage = "r.example/nic:1"
			f := rollout.Facts{Node: node}
			f.Order = &v1beta1.NodeModuleSpec{Config: config, Delivery: &v1beta1.Delivery{ID: "earlier"}}
			if tc.given != nil {
				tc.given(node, &f)
			}
			a := desired.New(tc.module).With(desired.Images{Makes: tc.makes}).On(&node.Status.NodeInfo)
			n, has := desired.Part(tc.module, &a, tc.taints, f)
			if has == tc.none || has && (n.Stage != tc.stage || n.Paused != tc.paused || n.Later != tc.later) {
				t.Errorf("%+v, %t", n, has)
			}
		})
	}
}

func nothing(_ *corev1.Node, f *rollout.Facts)       { f.Order = nil }
func unloads(_ *corev1.Node, f *rollout.Facts)       { f.Order.State = v1beta1.NodeModuleAbsent }
func deselected(node *corev1.Node, _ *rollout.Facts) { node.Labels = nil }
func tainted(node *corev1.Node, _ *rollout.Facts) {
	node.Spec.Taints = []corev1.Taint{{Key: asking[0], Effect: corev1.TaintEffectNoExecute}}
}

func both(a, b func(*corev1.Node, *rollout.Facts)) func(*corev1.Node, *rollout.Facts) {
	return func(node *corev1.Node, f *rollout.Facts) {
		a(node, f)
		b(node, f)
	}
}

// asking is what asks for an unload.
var asking = placement.UnloadTaints{"example.com/upgrade"}

// TestMemory: a Module is compiled once per generation, and a namesake is another one.
func TestMemory(t *testing.T) {
	var memory desired.Memory
	m := module(mapped)
	m.UID, m.Generation = "1", 1
	first := memory.Of(m)
	if memory.Of(m.DeepCopy()) != first {
		t.Error("the same generation was compiled again")
	}
	for name, change := range map[string]func(m *v1beta1.Module){
		"changed":  func(m *v1beta1.Module) { m.Generation = 2 },
		"namesake": func(m *v1beta1.Module) { m.UID = "2" },
	} {
		other := m.DeepCopy()
		change(other)
		if memory.Of(other) == first {
			t.Errorf("%s: it is taken for what was before", name)
		}
	}
}
