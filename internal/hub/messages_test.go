// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// TestMessages: the conditions of a ManagedClusterModule, as its status and events have them.
func TestMessages(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ready := func(name string) State {
		return State{Name: name, Sent: true, Applied: true, Ready: true, Reason: v1beta1.ReasonReady}
	}
	waits := func(name string) State {
		return State{Name: name, Reason: v1beta1.ReasonRollingOut, Message: "waits for its turn"}
	}
	failed := func(name string) State {
		return State{Name: name, Sent: true, Applied: true, Reason: v1beta1.ReasonVermagicMismatch, Message: "VermagicMismatch on node-1"}
	}
	unbuilt := State{Name: "east", Missing: true, Reason: v1beta1.ReasonBuilding, Message: "the image for kernel 6.1 (amd64) has not been " +
		"requested yet"}
	east, down := &Target{Name: "east"}, &Target{Name: "east", Unreachable: "connection refused"}
	const images, applied = "True ImagesAvailable: all clusters have their images", "True Ready: all clusters have the Module"
	for name, c := range map[string]struct {
		given Decision
		then  []string
	}{
		"no cluster": {Decision{}, []string{"True NoNodes: no cluster is selected", images, applied}},
		"no transport": {
			Decision{Absent: []string{"manifestwork"}},
			[]string{"True NoNodes: no cluster is selected; not installed on the hub: manifestwork", images, applied},
		},
		"one cluster": {Decision{States: []State{ready("a")}}, []string{"True Ready: ready on 1 cluster", images, applied}},
		"all clusters": {
			Decision{States: []State{ready("a"), ready("b")}}, []string{"True Ready: ready on all 2 clusters", images, applied},
		},
		"a cluster keeps a Module": {
			Decision{States: []State{ready("a")}, Kept: []State{Keeps(east, errors.New("forbidden"))}},
			[]string{
				"False DeliveryRefused: ready on 1 cluster; cluster east is no longer selected: the cluster refuses to delete the Module: forbidden",
				images, applied,
			},
		},
		"some failed": {
			Decision{
				States: []State{ready("a"), failed("b"), failed("c"), waits("d")},
				Order:  &Order{Halt: rollout.HaltFailed, Wave: "canary", Number: 1, Of: 2, Failed: []string{"b", "c"}, Waiting: 1},
			},
			[]string{
				"False VermagicMismatch: ready on 1 of 4 clusters; cluster b: VermagicMismatch on node-1; also c; " +
					"stopped in wave canary (1 of 2) because b, c failed, 1 cluster waits",
				images, "False AwaitingDelivery: 3 of 4 clusters have the Module",
			},
		},
		"it is paused": {
			Decision{States: []State{waits("a"), waits("b")}, Order: &Order{Halt: rollout.HaltPaused, Waiting: 2}},
			[]string{
				"False RollingOut: ready on 0 of 2 clusters; cluster a: waits for its turn; also b; paused, 2 clusters wait",
				images, "False AwaitingDelivery: 0 of 2 clusters have the Module",
			},
		},
		"an image is missing": {
			Decision{States: []State{ready("a"), unbuilt}},
			[]string{
				"False Building: ready on 1 of 2 clusters; cluster east: the image for kernel 6.1 (amd64) has not been requested yet",
				"False Building: 1 of 2 clusters lack an image; cluster east: the image for kernel 6.1 (amd64) has not been requested yet",
				"False AwaitingDelivery: 1 of 2 clusters have the Module",
			},
		},
		"too many clusters lose it": {
			Decision{Mass: []string{"a", "b"}, Confirmation: now.Add(-2 * time.Hour)},
			[]string{
				"False MassDeselection: 2 clusters are no longer selected, more than spec.rollout.maxConcurrency, and keep the Module: a, b. " +
					"Restore the selector or their labels, or confirm it: kubectl annotate managedclustermodule nic --overwrite " +
					"drover.dev/confirm-deselection=$(date -u +%FT%TZ); the confirmation of 2026-01-02T01:04:05Z does not count: " +
					"by the hub's clock, it is not of the last hour",
				images, applied,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.given.Order == nil {
				c.given.Order = &Order{}
			}
			m := &hubv1beta1.ManagedClusterModule{ObjectMeta: metav1.ObjectMeta{Name: "nic"}}
			if diff := cmp.Diff(c.then, said(StatusOf(m, &c.given, now))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	t.Run("it is being deleted", func(t *testing.T) {
		m := &hubv1beta1.ManagedClusterModule{ObjectMeta: metav1.ObjectMeta{Name: "nic"}}
		then := "False AgentMissing: is being deleted; waits for 2 clusters; cluster east: the hub cannot reach the cluster: connection " +
			"refused; " +
			"it keeps the Module until the hub reaches it, or no longer knows it"
		if got := said(Leaving(m, []State{Left(east, true), Left(down, false)}, now))[0]; got != then {
			t.Errorf("got:\n%s\nwant:\n%s", got, then)
		}
	})
}

// said are the conditions Ready, ImagesAvailable and Applied, in a line each.
func said(s *hubv1beta1.ManagedClusterModuleStatus) (lines []string) {
	for _, c := range s.Conditions {
		lines = append(lines, strings.Join([]string{string(c.Status), c.Reason + ":", c.Message}, " "))
	}
	return lines
}
