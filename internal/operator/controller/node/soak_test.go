// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// TestStatusHasTheSoakTimeOfOrders: a node that has soaked for the controller of orders is
// available in the condition, too, whenever the reporter saw it first.
func TestStatusHasTheSoakTimeOfOrders(t *testing.T) {
	for of, want := range map[string]string{"orders": "rollout: 1 of 2 nodes", "itself": "rollout: 0 of 2 nodes"} {
		t.Run(of, func(t *testing.T) {
			s := newScene(t, 2)
			one, soak := intstr.FromInt32(1), &metav1.Duration{Duration: time.Hour}
			s.change(t, func(m *v1beta1.Module) { m.Spec.Rollout = &v1beta1.RolloutSpec{MaxUnavailable: &one, Soak: soak} })
			id := s.asked(t)
			old := config()
			old.ContainerImage = strings.Replace(old.ContainerImage, "/nic:", "/nic-old:", 1)
			done, waits := holding(s.live("boot-1"), id), holding(s.live("boot-1"), "old", id)
			done.Modules[0].Observed = &v1beta1.ObservedModule{Delivery: id}
			waits.Modules[0].Config, waits.Modules[0].Observed = &old, &v1beta1.ObservedModule{Delivery: "old"}
			for name, status := range map[string]v1beta1.NodeModulesConfigStatus{s.nodes[0]: done, s.nodes[1]: waits} {
				s.order(t, name)
				s.report(t, name, status)
			}
			s.orders(t, s.nodes[0], id, config())
			s.orders(t, s.nodes[1], "old", old)

			seen := &rollout.Sightings{}
			if of == "orders" {
				seen.Date(types.NamespacedName{Namespace: s.namespace, Name: "nic"}, []rollout.Node{
					{Name: s.nodes[0], Stage: rollout.Given, Since: time.Unix(1, 0),
						Load: rollout.Load{Boot: "boot-1", At: done.Modules[0].LastTransitionTime.Unix()}},
					{Name: s.nodes[1], Stage: rollout.Behind},
				}, rollout.PolicyOf(s.module), time.Now().Add(-2*time.Hour))
			}
			startOptions(t, s.Env, node.Options{Seen: seen})
			c := s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonRollingOut)
			if !strings.Contains(c.Message, want) {
				t.Errorf("the condition says %q, want %q", c.Message, want)
			}
		})
	}
}
