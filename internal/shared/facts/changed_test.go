// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/facts"
)

// orders is a node's object with an order for, and a report of, each of the Modules 0 to n-1.
func orders(n int) *v1beta1.NodeModulesConfig {
	c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", Labels: map[string]string{}}}
	for i := range n {
		item := v1beta1.ModuleItem{Namespace: "team", Name: fmt.Sprintf("m%d", i)}
		id := fmt.Sprintf("d%d", i)
		c.Spec.Modules = append(c.Spec.Modules, v1beta1.NodeModuleSpec{ModuleItem: item, Delivery: &v1beta1.Delivery{ID: id}})
		c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{ModuleItem: item, Observed: &v1beta1.ObservedModule{BuildID: "b"}})
		c.Status.Artifacts = append(c.Status.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: "x"})
		c.Labels[v1beta1.InUseLabel("team", item.Name)] = ""
	}
	return c
}

func TestAReportConcernsTheModulesWhosePartChanged(t *testing.T) {
	cases := map[string]struct {
		change func(*v1beta1.NodeModulesConfig)
		// then are the names, each with whether an order names it.
		then map[string]bool
	}{
		"nothing":  {change: func(c *v1beta1.NodeModulesConfig) { c.ResourceVersion = "2" }},
		"an order": {change: func(c *v1beta1.NodeModulesConfig) { c.Spec.Modules[3].Paused = true }, then: map[string]bool{"m3": true}},
		"what is live": {
			change: func(c *v1beta1.NodeModulesConfig) { c.Status.Modules[5].Observed.BuildID = "c" }, then: map[string]bool{"m5": true},
		},
		"an order's end": {change: func(c *v1beta1.NodeModulesConfig) { c.Spec.Modules = c.Spec.Modules[:9] }, then: map[string]bool{"m9": true}},
		"another order among the reports": {
			change: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Modules[0], c.Status.Modules[1] = c.Status.Modules[1], c.Status.Modules[0]
			},
		},
		"an attempt": {
			change: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "m1", State: v1beta1.AttemptFailed}}
			},
			then: map[string]bool{"m1": true},
		},
		"what the node holds": {
			change: func(c *v1beta1.NodeModulesConfig) { c.Status.Artifacts = c.Status.Artifacts[1:] }, then: map[string]bool{"m0": true},
		},
		"what the node holds without an order": {
			change: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Artifacts = append(c.Status.Artifacts, v1beta1.NodeArtifact{ID: "made up"})
			},
		},
		"an order's label": {
			change: func(c *v1beta1.NodeModulesConfig) { delete(c.Labels, v1beta1.InUseLabel("team", "m7")) }, then: map[string]bool{"m7": true},
		},
		"names that nobody but the node knows": {
			change: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "ghost"}})
				c.Status.Attempts = append(c.Status.Attempts, v1beta1.NodeModuleAttempt{Namespace: "x", Name: "y"})
			},
			then: map[string]bool{"ghost": false, "y": false},
		},
		"the finalizer concerns all": {
			change: func(c *v1beta1.NodeModulesConfig) { c.Finalizers, c.Spec.Modules = []string{"f"}, c.Spec.Modules[:2] },
			then: map[string]bool{
				"m0": true, "m1": true, "m2": true, "m3": true, "m4": true, "m5": true, "m6": true, "m7": true, "m8": true, "m9": true,
			},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			now := orders(10)
			test.change(now)
			if diff := cmp.Diff(test.then, byName(facts.Changed(orders(10), now))); diff != "" {
				t.Errorf("Modules (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(map[string]bool{"m0": true}, byName(facts.Changed(nil, orders(1)))); diff != "" {
		t.Errorf("a new object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"m0": true}, byName(facts.Changed(orders(1), nil))); diff != "" {
		t.Errorf("an object that went (-want +got):\n%s", diff)
	}
}

func byName(changed map[types.NamespacedName]bool) map[string]bool {
	var names map[string]bool
	for key, ordered := range changed {
		if names == nil {
			names = map[string]bool{}
		}
		names[key.Name] = ordered
	}
	return names
}
