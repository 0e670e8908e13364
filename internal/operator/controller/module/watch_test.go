// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/watch"
)

func TestAHeartbeatIsNoChange(t *testing.T) {
	node := func(boot string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			BootID: boot, Swap: &corev1.NodeSwapStatus{Capacity: ptr.To[int64](1 << 30)},
		}}}
	}
	if watch.NodeChanged(node("a"), node("a")) {
		t.Error("a node with swap changes with every heartbeat")
	}
	if !watch.NodeChanged(node("a"), node("b")) {
		t.Error("a reboot is a change")
	}
}

// asked is a queue that only remembers what it is asked for.
type asked struct {
	watch.Queue
	names map[string]bool
}

func (a *asked) AddAfter(r reconcile.Request, _ time.Duration) { a.names[r.Name] = true }

// cached is a cache with Modules of some names and one NodeModulesConfig.
type cached struct {
	client.Client
	modules []string
	config  *v1beta1.NodeModulesConfig
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if slices.Contains(c.modules, key.Name) {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "modules"}, key.Name)
}

func (c *cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, ok := list.(*v1beta1.NodeModulesConfigList); ok {
		l.Items = []v1beta1.NodeModulesConfig{*c.config}
		return nil
	}
	return fmt.Errorf("an event lists %T", list)
}

// busy is a node with orders for 200 Modules, all live.
func busy() *v1beta1.NodeModulesConfig {
	c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
	for i := range 200 {
		item := v1beta1.ModuleItem{Namespace: "team", Name: fmt.Sprintf("m%d", i)}
		c.Spec.Modules = append(c.Spec.Modules, v1beta1.NodeModuleSpec{ModuleItem: item, Delivery: &v1beta1.Delivery{ID: "d" + item.Name}})
		c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{ModuleItem: item})
	}
	return c
}

func strike(module, delivery string) v1beta1.NodeModuleAttempt {
	return v1beta1.NodeModuleAttempt{Namespace: "team", Name: module, State: v1beta1.AttemptFailed,
		Strike: &v1beta1.Strike{Delivery: delivery}}
}

func TestWhatANodeReportsCostsThePassesOfWhatChanged(t *testing.T) {
	cases := map[string]struct {
		before, now func(*v1beta1.NodeModulesConfig)
		then        []string
	}{
		"one Module of 200": {now: func(c *v1beta1.NodeModulesConfig) { c.Status.Modules[7].BootID = "b" }, then: []string{"m7"}},
		"5,000 invented names": {now: func(c *v1beta1.NodeModulesConfig) {
			for i := range 5000 {
				c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{
					ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: fmt.Sprintf("ghost%d", i)},
				})
			}
		}},
		"a Module that is there and has no order": {
			now: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Modules = append(c.Status.Modules, v1beta1.NodeModuleStatus{ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "there"}})
			},
			then: []string{"there"},
		},
		"a strike concerns the Modules with strikes": {
			before: func(c *v1beta1.NodeModulesConfig) { c.Status.Attempts = append(c.Status.Attempts, strike("m1", "dm1")) },
			now: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Attempts = append(c.Status.Attempts, strike("m1", "dm1"), strike("m2", "dm2"))
			},
			then: []string{"m1", "m2"},
		},
		"a strike without an order for that delivery": {
			before: func(c *v1beta1.NodeModulesConfig) { c.Status.Attempts = append(c.Status.Attempts, strike("m1", "dm1")) },
			now: func(c *v1beta1.NodeModulesConfig) {
				c.Status.Attempts = append(c.Status.Attempts, strike("m1", "dm1"), strike("m2", "made up"))
			},
			then: []string{"m2"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			before, now := busy(), busy()
			if test.before != nil {
				test.before(before)
			}
			test.now(now)
			q := &asked{names: map[string]bool{}}
			c := New(&cached{modules: []string{"there"}, config: now}, nil, Options{})

			c.configEvent(t.Context(), q, before, now)

			if diff := cmp.Diff(test.then, slices.Sorted(maps.Keys(q.names))); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
		})
	}
}
