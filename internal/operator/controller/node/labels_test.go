// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const boot = "boot-2"

func entry(change ...func(*v1beta1.NodeModulesConfig)) *v1beta1.NodeModulesConfig {
	item := v1beta1.ModuleItem{Namespace: "team", Name: "nic", ServiceAccountName: "default"}
	config := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "example.com/nic:1"}
	nmc := &v1beta1.NodeModulesConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec:       v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{{ModuleItem: item, Config: config}}},
		Status: v1beta1.NodeModulesConfigStatus{
			Modules: []v1beta1.NodeModuleStatus{{ModuleItem: item, Config: &config, BootID: boot}},
		},
	}
	for _, f := range change {
		f(nmc)
	}
	return nmc
}

func TestWantedLabels(t *testing.T) {
	const (
		ready   = "kmm.node.kubernetes.io/team.nic.ready"
		version = "kmm.node.kubernetes.io/team.nic.version.ready"
		plugged = "kmm.node.kubernetes.io/team.nic.device-plugin-ready"
		driven  = "kmm.node.kubernetes.io/team.nic.dra-ready"
	)
	cases := map[string]struct {
		given   *v1beta1.NodeModulesConfig
		plugins []plugin
		then    map[string]string
	}{
		"live in this boot": {given: entry(), then: map[string]string{ready: ""}},
		"with a version": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Status.Modules[0].Version = "v2" }),
			then:  map[string]string{ready: "", version: "v2"},
		},
		"live in an earlier boot": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Status.Modules[0].BootID = "boot-1" }),
			then:  map[string]string{},
		},
		"ordered to leave": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Spec.Modules[0].State = v1beta1.NodeModuleAbsent }),
			then:  map[string]string{},
		},
		"another build is ordered": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Spec.Modules[0].Config.ContainerImage = "example.com/nic:2" }),
			then:  map[string]string{},
		},
		"only the pull policy differs": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Spec.Modules[0].Config.ImagePullPolicy = corev1.PullAlways }),
			then:  map[string]string{ready: ""},
		},
		"to be reloaded, and in use": {
			given: entry(func(n *v1beta1.NodeModulesConfig) {
				n.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: v1beta1.AttemptInUse,
					Reason: v1beta1.ReasonInUse}}
			}),
			then: map[string]string{},
		},
		"a check of readyWhen fails": {
			given: entry(func(n *v1beta1.NodeModulesConfig) {
				n.Status.Modules[0].Version, n.Status.Modules[0].Observed = "v2", &v1beta1.ObservedModule{Unusable: true}
			}),
			then: map[string]string{},
		},
		"another order failed": {
			given: entry(func(n *v1beta1.NodeModulesConfig) {
				n.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "other", State: v1beta1.AttemptFailed,
					Reason: v1beta1.ReasonTimeout}}
			}),
			then: map[string]string{ready: ""},
		},
		"no order": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Spec.Modules = nil }),
			then:  map[string]string{},
		},
		"not live": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Status.Modules = nil }),
			then:  map[string]string{},
		},
		"no object": {then: map[string]string{}},
		"a plugin without a loader": {
			plugins: []plugin{{v1beta1.RoleDevicePlugin, types.NamespacedName{Namespace: "team", Name: "nic"}}},
			then:    map[string]string{plugged: ""},
		},
		"a DRA driver": {
			given:   entry(),
			plugins: []plugin{{v1beta1.RoleDRA, types.NamespacedName{Namespace: "team", Name: "nic"}}},
			then:    map[string]string{ready: "", driven: ""},
		},
		"a key that is too long": {
			given:   entry(),
			plugins: []plugin{{v1beta1.RoleDevicePlugin, types.NamespacedName{Namespace: "team", Name: strings.Repeat("m", 60)}}},
			then:    map[string]string{ready: ""},
		},
		"a version that is no label value": {
			given: entry(func(n *v1beta1.NodeModulesConfig) { n.Status.Modules[0].Version = "1.0+git" }),
			then:  map[string]string{ready: ""},
		},
		"all": {
			given:   entry(),
			plugins: []plugin{{v1beta1.RoleDevicePlugin, types.NamespacedName{Namespace: "team", Name: "nic"}}},
			then:    map[string]string{ready: "", plugged: ""},
		},
	}
	node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.then, wantedLabels(node, tc.given, tc.plugins, func(types.NamespacedName) bool { return false })); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLabelPatch(t *testing.T) {
	const d = "kmm.node.kubernetes.io/"
	cases := map[string]struct {
		have, want map[string]string
		then       map[string]any
	}{
		"right":   {map[string]string{d + "a.b.ready": "", "x": "y"}, map[string]string{d + "a.b.ready": ""}, nil},
		"nothing": {nil, nil, nil},
		"on":      {nil, map[string]string{d + "a.b.ready": ""}, map[string]any{d + "a.b.ready": ""}},
		"off":     {map[string]string{d + "a.b.ready": ""}, nil, map[string]any{d + "a.b.ready": nil}},
		"another version": {map[string]string{d + "a.b.version.ready": "1"}, map[string]string{d + "a.b.version.ready": "2"},
			map[string]any{d + "a.b.version.ready": "2"}},
		"deprecated":        {map[string]string{d + "b.ready": ""}, nil, map[string]any{d + "b.ready": nil}},
		"plugin off":        {map[string]string{d + "a.b.device-plugin-ready": ""}, nil, map[string]any{d + "a.b.device-plugin-ready": nil}},
		"the user's labels": {map[string]string{d + "version-module.a.b": "1", "example.com/x.ready": ""}, nil, nil},
		"a version label of a Module named gpu-ready": {map[string]string{d + "version-module.a.gpu-ready": "1", d +
			"version-module.a.b.ready": "1"}, nil, nil},
		"labels like ours": {map[string]string{d + "a.b.not-ready": "x"}, nil, nil},
		"DRA off":          {map[string]string{d + "a.b.dra-ready": ""}, nil, map[string]any{d + "a.b.dra-ready": nil}},
		"several at once": {
			map[string]string{d + "a.b.ready": ""}, map[string]string{d + "a.c.ready": "", d + "a.c.version.ready": "3"},
			map[string]any{d + "a.b.ready": nil, d + "a.c.ready": "", d + "a.c.version.ready": "3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			patch, err := labelPatch(tc.have, tc.want)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Metadata struct {
					Labels map[string]any `json:"labels"`
				} `json:"metadata"`
			}
			if patch != nil {
				if err := json.Unmarshal(patch, &got); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.then, got.Metadata.Labels); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
