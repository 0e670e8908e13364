// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestTooManyAreNotRecalledUnconfirmed: a slip in a selector empties no cluster, where
// maxConcurrency says how many may be changed.
func TestTooManyAreNotRecalledUnconfirmed(t *testing.T) {
	one := intstr.FromInt32(1)
	for name, tc := range map[string]struct {
		rollout   *hubv1beta1.ClusterRollout
		confirmed time.Duration // before now
		selected  int
		recalled  string
		mass      int
	}{
		"no order":                  {selected: 0, recalled: "a b c"},
		"no number":                 {rollout: &hubv1beta1.ClusterRollout{}, selected: 0, recalled: "a b c"},
		"as many as may be changed": {rollout: &hubv1beta1.ClusterRollout{MaxConcurrency: &one}, selected: 2, recalled: "c"},
		"more":                      {rollout: &hubv1beta1.ClusterRollout{MaxConcurrency: &one}, selected: 1, mass: 2},
		"more, confirmed": {rollout: &hubv1beta1.ClusterRollout{MaxConcurrency: &one}, selected: 1, confirmed: time.Minute,
			recalled: "b c"},
		"more, confirmed the day before": {rollout: &hubv1beta1.ClusterRollout{MaxConcurrency: &one}, selected: 1, confirmed: 24 * time.Hour,
			mass: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a", "b", "c")
			s.make("sha256:1")
			s.deliver(s.decide(), nil)
			s.now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
			s.facts.Module.Spec.Rollout = tc.rollout
			if tc.confirmed > 0 {
				s.facts.Module.Annotations = map[string]string{v1beta1.ConfirmDeselectionAnnotation: s.now.Add(-tc.confirmed).Format(time.RFC3339)}
			}
			s.facts.Targets = s.facts.Targets[:tc.selected]
			d := s.decide()
			if got := strings.Join(d.Recall, " "); got != tc.recalled || len(d.Mass) != tc.mass {
				t.Errorf("recalled from %q, kept by %v", got, d.Mass)
			}
			ready := StatusOf(s.facts.Module, d, s.now).Conditions[0]
			if held := ready.Reason == v1beta1.ReasonMassDeselection &&
				strings.Contains(ready.Message, "kubectl annotate managedclustermodule nic"); held != (tc.mass > 0) {
				t.Errorf("it says %s: %s", ready.Reason, ready.Message)
			}
		})
	}
}

// TestADeselectedClusterThatIsAwayHoldsNobodyUp: it is named, and is asked when it is back.
func TestADeselectedClusterThatIsAwayHoldsNobodyUp(t *testing.T) {
	one := intstr.FromInt32(1)
	s := newScene(t, "a", "b", "c")
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{MaxConcurrency: &one}
	away := s.facts.Parcels["a"]
	away.Away = "no route to host"
	s.facts.Parcels["a"] = away
	s.facts.Targets = s.facts.Targets[2:]

	d := s.decide()

	if strings.Join(d.Recall, " ") != "b" || len(d.Mass) > 0 {
		t.Errorf("recalled from %v, kept by %v", d.Recall, d.Mass)
	}
	ready := StatusOf(s.facts.Module, d, s.now).Conditions[0]
	if !strings.Contains(ready.Message, "cluster a is no longer selected: the hub cannot reach the cluster: no route to host") {
		t.Errorf("it says %s", ready.Message)
	}
}

// TestWhatIsRecalledAlreadyHoldsNobodyUp: a cluster that is away keeps its Module for days.
func TestWhatIsRecalledAlreadyHoldsNobodyUp(t *testing.T) {
	one := intstr.FromInt32(1)
	s := newScene(t, "a", "b", "c")
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{MaxConcurrency: &one}
	going, refused := s.facts.Parcels["a"], s.facts.Parcels["b"]
	going.Going, refused.Nothing = true, true
	s.facts.Parcels["a"], s.facts.Parcels["b"] = going, refused
	s.facts.Targets = nil
	if d := s.decide(); strings.Join(d.Recall, " ") != "a b c" || len(d.Mass) > 0 {
		t.Errorf("recalled from %v, kept by %v", d.Recall, d.Mass)
	}
}
