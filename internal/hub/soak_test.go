// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// TestSoak: a cluster counts when it has been Ready for the soak time, all the while, and is
// reached.
func TestSoak(t *testing.T) {
	const soak = time.Hour
	begin := func(t *testing.T) *scene {
		s := newScene(t, "a", "b")
		s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
			Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}, Soak: &metav1.Duration{Duration: soak},
		}
		s.make("sha256:1")
		s.deliver(s.decide(), nil)
		if d := s.decide(); s.sent(d) != "a" || !d.Order.Again.Equal(s.now.Add(soak)) {
			t.Fatalf("sent to %q, again at %s", s.sent(d), d.Order.Again)
		}
		return s
	}
	report := func(s *scene, change func(*Report)) {
		p := s.facts.Parcels["a"]
		change(&p.Report)
		s.facts.Parcels["a"] = p
	}
	for name, tc := range map[string]struct {
		between func(*scene)
		sent    string
	}{
		"Ready all the while": {between: func(*scene) {}, sent: "a b"},
		"it has failed meanwhile": {between: func(s *scene) {
			report(s, func(r *Report) { r.Ready, r.Reason = metav1.ConditionFalse, v1beta1.ReasonLoadFailed })
			s.decide()
			report(s, func(r *Report) { r.Ready, r.Reason = metav1.ConditionTrue, v1beta1.ReasonReady })
		}, sent: "a"},
		"it went away as it was Ready": {between: func(s *scene) { s.facts.Targets[0].Unreachable = "lease" }, sent: "a"},
		"it was away meanwhile": {between: func(s *scene) {
			s.facts.Targets[0].Unreachable = "lease"
			s.decide()
			s.facts.Targets[0].Unreachable = ""
		}, sent: "a"},
		"a kernel is new there, and its image is being made": {between: func(s *scene) {
			s.facts.Targets[0].Claims = map[string]string{KernelsClaim: debian.Kernel + "\n" + newer.Kernel}
			s.declare()
			s.decide()
		}, sent: "b"},
		"another process took over": {between: func(s *scene) { s.facts.Seen = &rollout.Sightings{} }, sent: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			s.later(soak / 2)
			tc.between(s)
			s.decide()
			s.later(soak / 2)
			if d := s.decide(); s.sent(d) != tc.sent {
				t.Errorf("sent to %q, want %q; order %+v", s.sent(d), tc.sent, d.Order)
			}
		})
	}
	t.Run("a process that finds nothing to do says what the one before said", func(t *testing.T) {
		s := begin(t)
		s.decide()
		s.later(soak)
		s.deliver(s.decide(), nil)
		s.decide()
		s.later(soak)
		before := StatusOf(s.facts.Module, s.decide(), s.now)
		s.facts.Seen = &rollout.Sightings{}
		if diff := cmp.Diff(before, StatusOf(s.facts.Module, s.decide(), s.now)); diff != "" || before.Wave != "" {
			t.Errorf("wave %q, and then (-before +after):\n%s", before.Wave, diff)
		}
	})
}

// TestAKernelUpgradePassesNoWave: a cluster that has only kernels that are new there gets what it
// had, and nothing that its wave has not had.
func TestAKernelUpgradePassesNoWave(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*scene)
		sent   string
	}{
		"nothing else has changed": {change: func(*scene) {}, sent: "a b"},
		"the driver's source has": {
			change: func(s *scene) {
				s.sources["dockerfile"] = &corev1.ConfigMap{Data: map[string]string{"dockerfile": "FROM scratch\n"}}
			}, sent: "a",
		},
		"its image has": {
			change: func(s *scene) {
				s.facts.Module.Spec.ModuleSpec.ModuleLoader.Container.ContainerImage = "example.com/nic:2-${KERNEL_FULL_VERSION}"
			}, sent: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a", "b")
			s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
				Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}}
			s.make("sha256:1")
			s.deliver(s.decide(), nil)
			s.deliver(s.decide(), nil)
			tc.change(s)
			s.facts.Targets[1].Claims = map[string]string{KernelsClaim: newer.Kernel}
			s.facts.Images = map[string]*v1alpha1.ModuleImage{}
			s.make("sha256:2")
			if tc.sent == "a b" {
				s.facts.Images[s.facts.Made.For[debian]].Status.Image = "example.com/nic@sha256:1" // what is made already stays
			}
			if d := s.decide(); s.sent(d) != tc.sent {
				t.Errorf("sent to %q, want %q", s.sent(d), tc.sent)
			}
		})
	}
}

// TestAnEditThatChangesNothingOfAClusterPassesNoWave: what comes there later would be new.
func TestAnEditThatChangesNothingOfAClusterPassesNoWave(t *testing.T) {
	s := newScene(t, "a", "b")
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
		Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}}
	s.facts.Targets[0].Claims = map[string]string{KernelsClaim: debian.Kernel + "\n" + newer.Kernel}
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.deliver(s.decide(), nil)
	// The driver for the newer kernel, which the canary runs, is another one, and fails.
	s.facts.Module.Spec.ModuleSpec.ModuleLoader.Container.KernelMappings[1].ContainerImage = "example.com/nic:2-${KERNEL_FULL_VERSION}"
	s.make("sha256:1")
	fails := func(cluster string, r *Report) {
		if cluster == "a" {
			r.Ready, r.Reason = metav1.ConditionFalse, v1beta1.ReasonLoadFailed
		}
	}
	s.deliver(s.decide(), fails)
	s.facts.Targets[1].Claims = map[string]string{KernelsClaim: debian.Kernel + "\n" + newer.Kernel}
	s.make("sha256:1")
	for range 2 {
		d := s.decide()
		if d.Send["b"] != nil {
			t.Fatalf("b was sent what has failed on the canary; order %+v", d.Order)
		}
		s.deliver(d, fails)
	}
}

// TestAnotherNamespaceGoesByWaves: it is unloaded in one and loaded in the other.
func TestAnotherNamespaceGoesByWaves(t *testing.T) {
	s := newScene(t, "a", "b")
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
		Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}}
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.deliver(s.decide(), nil)
	s.facts.Module.Spec.SpokeNamespace = "elsewhere"
	s.make("sha256:1")
	if d := s.decide(); s.sent(d) != "a" {
		t.Errorf("sent to %q", s.sent(d))
	}
}
