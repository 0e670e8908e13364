// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/orderhash"
	"github.com/drover-project/drover/internal/shared/status"
)

// TestCurrent: from what is at rest, each case changes one fact.
func TestCurrent(t *testing.T) {
	type situation struct {
		order *v1beta1.NodeModuleSpec
		live  *v1beta1.NodeModuleStatus
		nmc   *v1beta1.NodeModulesConfig
		ask   *desired.State
	}
	attempted := func(state v1beta1.AttemptState) func(*situation) {
		return func(s *situation) {
			s.nmc.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: state}}
		}
	}
	another := func(s *situation) { s.order.Config.ContainerImage, s.order.Delivery.ID = "nic:2", "second" }
	type answer struct{ Usable, Current bool }
	cases := map[string]struct {
		given func(*situation)
		then  answer
	}{
		"at rest":                      {func(*situation) {}, answer{true, true}},
		"another image is asked for":   {func(s *situation) { s.ask.Config.ContainerImage = "nic:2" }, answer{true, false}},
		"only the pull policy differs": {func(s *situation) { s.ask.Config.ImagePullPolicy = corev1.PullAlways }, answer{true, true}},
		"another delivery is asked for": {
			func(s *situation) { s.ask.Delivery = "second" }, answer{true, false},
		},
		"ordered, and not held yet": {
			func(s *situation) { s.ask.Delivery, s.order.Delivery.ID = "second", "second" }, answer{true, false},
		},
		"ordered, held, and failed": {func(s *situation) {
			s.ask.Delivery, s.order.Delivery.ID = "second", "second"
			s.nmc.Status.Artifacts = append(s.nmc.Status.Artifacts, v1beta1.NodeArtifact{ID: "second"})
			attempted(v1beta1.AttemptFailed)(s)
		}, answer{true, false}},
		"in use":  {attempted(v1beta1.AttemptInUse), answer{false, false}},
		"waiting": {attempted(v1beta1.AttemptWaiting), answer{true, false}},
		"told of what is live": {func(s *situation) {
			attempted(v1beta1.AttemptWaiting)(s)
			s.nmc.Status.Attempts[0].Reason = v1beta1.ReasonParametersDiffer
		}, answer{true, true}},
		"an old unload":  {attempted(v1beta1.AttemptAbsent), answer{true, true}},
		"held no longer": {func(s *situation) { s.nmc.Status.Artifacts = nil }, answer{true, false}},
		"compiled into the kernel": {func(s *situation) {
			s.nmc.Status.Artifacts = nil
			s.live.Observed = &v1beta1.ObservedModule{BuiltIn: true}
		}, answer{true, true}},
		"an order of somebody else":       {func(s *situation) { s.order.Delivery = nil }, answer{true, true}},
		"nothing can be asked for":        {func(s *situation) { s.ask = nil }, answer{true, false}},
		"asked for again before the load": {func(s *situation) { s.order.Config.ContainerImage = "nic:2" }, answer{false, false}},
		"for the next boot": {func(s *situation) {
			another(s)
			s.order.UnloadPolicy = v1beta1.UnloadOnReboot
		}, answer{true, false}},
		"for the next boot, and not ready": {func(s *situation) {
			another(s)
			s.order.UnloadPolicy, s.live.Observed = v1beta1.UnloadOnReboot, &v1beta1.ObservedModule{Unusable: true}
		}, answer{false, false}},
		"a pause keeps it": {func(s *situation) {
			another(s)
			s.order.Paused = true
		}, answer{true, false}},
		"it failed, and what was there serves again": {func(s *situation) {
			another(s)
			attempted(v1beta1.AttemptFailed)(s)
			s.nmc.Status.Attempts[0].Order = orderhash.WithPolicy(s.order)
		}, answer{true, false}},
		"an earlier one failed": {func(s *situation) {
			attempted(v1beta1.AttemptFailed)(s)
			s.nmc.Status.Attempts[0].Order = orderhash.WithPolicy(s.order)
			another(s)
		}, answer{false, false}},
		"which one failed is not said": {func(s *situation) {
			another(s)
			attempted(v1beta1.AttemptFailed)(s)
		}, answer{false, false}},
		"only a boot takes out what is there": {func(s *situation) {
			another(s)
			attempted(v1beta1.AttemptWaiting)(s)
			s.nmc.Status.Attempts[0].Order, s.nmc.Status.Attempts[0].Reason = orderhash.WithPolicy(s.order), v1beta1.ReasonRebootRequired
		}, answer{true, false}},
		"another boot": {func(s *situation) { s.live.BootID = "boot-0" }, answer{false, false}},
	}
	node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-1"}}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			item := v1beta1.ModuleItem{Namespace: "team", Name: "nic"}
			config := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "nic:1"}
			nmc := &v1beta1.NodeModulesConfig{
				Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{
					{ModuleItem: item, Config: config, Delivery: &v1beta1.Delivery{ID: "first"}},
				}},
				Status: v1beta1.NodeModulesConfigStatus{
					Modules:   []v1beta1.NodeModuleStatus{{ModuleItem: item, Config: &config, BootID: "boot-1"}},
					Artifacts: []v1beta1.NodeArtifact{{ID: "first"}},
				},
			}
			s := &situation{
				order: &nmc.Spec.Modules[0], live: &nmc.Status.Modules[0], nmc: nmc,
				ask: &desired.State{Config: config, Delivery: "first"},
			}
			tc.given(s)
			entry := status.EntryOf(nmc, "team", "nic")
			got := answer{Usable: entry.Usable(node), Current: entry.Current(node, s.ask)}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
