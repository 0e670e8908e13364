// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// scene is a hub with clusters.
type scene struct {
	*testing.T
	facts   Facts
	now     time.Time
	sources map[string]*corev1.ConfigMap
}

func newScene(t *testing.T, clusters ...string) *scene {
	s := &scene{T: t, now: time.Unix(1000, 0),
		sources: map[string]*corev1.ConfigMap{"dockerfile": {Data: map[string]string{"dockerfile": "FROM scratch"}}}}
	s.facts = Facts{
		Module: built(), Parcels: map[string]Parcel{}, Images: map[string]*v1alpha1.ModuleImage{},
		Seen: &rollout.Sightings{},
	}
	for _, name := range clusters {
		s.facts.Targets = append(s.facts.Targets,
			Target{Name: name, Labels: map[string]string{"name": name}, Claims: map[string]string{KernelsClaim: debian.Kernel}})
	}
	return s
}

// declare says which images are wanted, and has them asked for.
func (s *scene) declare() {
	s.Helper()
	known := map[Platform]bool{}
	for _, t := range s.facts.Targets {
		found, _ := Platforms(t.Claims)
		for _, p := range found {
			known[p] = true
		}
	}
	made, err := MakingsOf(s.facts.Module, slices.SortedFunc(maps.Keys(known), compare), "drover-system", "example.com/buildah@sha256:1",
		s.sources)
	if err != nil {
		s.Fatal(err)
	}
	s.facts.Made = made
	for name, spec := range made.Specs {
		if s.facts.Images[name] == nil {
			s.facts.Images[name] = &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Spec: *spec}
		}
	}
}

// make has all images there.
func (s *scene) make(digest string) {
	s.Helper()
	s.declare()
	for _, image := range s.facts.Images {
		image.Status.Image = image.Spec.Image[:strings.LastIndexByte(image.Spec.Image, ':')] + "@" + digest
		image.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
	}
}

// later lets time go by.
func (s *scene) later(d time.Duration) { s.now = s.now.Add(d) }

func (s *scene) decide() *Decision {
	s.Helper()
	d, err := Decide(&s.facts, s.now)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// deliver sends what is to be sent; answer says what becomes of it.
func (s *scene) deliver(d *Decision, answer func(cluster string, r *Report)) {
	for cluster, m := range d.Send {
		r := Report{Applied: true, Revision: m.Annotations[RevisionAnnotation], Current: true, Ready: metav1.ConditionTrue,
			Reason: v1beta1.ReasonReady, Desired: 2, Available: 2}
		if answer != nil {
			answer(cluster, &r)
		}
		s.facts.Parcels[cluster] = Parcel{Module: m, Report: r}
	}
}

func (s *scene) sent(d *Decision) string { return strings.Join(slices.Sorted(maps.Keys(d.Send)), " ") }

func (s *scene) expect(d *Decision, cluster, reason, message string) {
	s.Helper()
	for _, state := range d.States {
		if state.Name == cluster {
			if state.Reason != reason || !strings.Contains(state.Message, message) {
				s.Errorf("%s: %s: %q, want %s: %q", cluster, state.Reason, state.Message, reason, message)
			}
			return
		}
	}
	s.Errorf("nothing is said of %s", cluster)
}

func TestAModuleLeavesWhenItsImagesAreThere(t *testing.T) {
	s := newScene(t, "a")
	s.declare()
	if d := s.decide(); len(d.Send) > 0 {
		t.Error("a Module left before its image was there")
	} else {
		s.expect(d, "a", v1beta1.ReasonBuilding, "the image for kernel "+debian.Kernel)
	}
	s.make("sha256:1")
	d := s.decide()
	if s.sent(d) != "a" {
		t.Fatalf("sent to %q", s.sent(d))
	}
	if got := d.Send["a"].Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage; got != "example.com/nic@sha256:1" {
		t.Errorf("image %s", got)
	}
	s.expect(d, "a", v1beta1.ReasonRollingOut, "")
	s.deliver(d, nil)
	s.expect(s.decide(), "a", v1beta1.ReasonReady, "")
}

// TestOneImageForAllClusters: what two clusters run is made once.
func TestOneImageForAllClusters(t *testing.T) {
	s := newScene(t, "a", "b")
	s.declare()
	if len(s.facts.Made.Specs) != 1 {
		t.Errorf("%d images", len(s.facts.Made.Specs))
	}
}

func TestWhatAClusterSays(t *testing.T) {
	for name, tc := range map[string]struct {
		given  func(*scene)
		answer func(*Report)
		reason string
		text   string
	}{
		"it has not answered":               {answer: func(r *Report) { *r = Report{} }, reason: v1beta1.ReasonAwaitingDelivery},
		"it speaks of an older one":         {answer: func(r *Report) { r.Revision = "older" }, reason: v1beta1.ReasonAwaitingDelivery},
		"its operator has not looked at it": {answer: func(r *Report) { r.Current = false }, reason: v1beta1.ReasonAwaitingDelivery},
		"it does not take it": {
			answer: func(r *Report) { *r = Report{Refused: "namespaces \"drivers\" not found"} }, reason: v1beta1.ReasonDeliveryRefused,
			text: "not found",
		},
		"a node has failed": {
			answer: func(r *Report) {
				r.Ready, r.Reason, r.Message = metav1.ConditionFalse, v1beta1.ReasonUnknownSymbol, "node-7: no symbol"
			},
			reason: v1beta1.ReasonUnknownSymbol, text: "node-7",
		},
		"it is not reached, and was Ready": {given: func(s *scene) { s.facts.Targets[0].Unreachable = "lease" },
			reason: v1beta1.ReasonAgentMissing, text: "lease"},
		"it is not reached, and unknown": {
			given: func(s *scene) {
				s.facts.Targets[0] = Target{Name: "a", Unreachable: "connection refused", Unknown: true}
			},
			reason: v1beta1.ReasonAgentMissing, text: "cannot reach the cluster: connection refused",
		},
		"it has told no kernel": {given: func(s *scene) { s.facts.Targets[0].Claims = nil }, reason: v1beta1.ReasonAwaitingDelivery,
			text: "spoke mode"},
		"no kernel has a mapping": {
			given:  func(s *scene) { s.facts.Targets[0].Claims = map[string]string{KernelsClaim: other.Kernel} },
			reason: v1beta1.ReasonNoKernelMapping, text: "no kernel",
		},
		"a mapping cannot be read": {
			given: func(s *scene) {
				s.facts.Module.Spec.ModuleSpec.ModuleLoader.Container.ContainerImage = "example.com/nic:${KERNEL_VERSON}"
			},
			reason: v1beta1.ReasonNoKernelMapping, text: "KERNEL_VERSON",
		},
		"the source is missing": {given: func(s *scene) { s.sources = nil }, reason: v1beta1.ReasonBuildInputMissing, text: "dockerfile"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "a")
			if tc.given != nil {
				tc.given(s)
			}
			s.make("sha256:1")
			s.deliver(s.decide(), func(_ string, r *Report) {
				if tc.answer != nil {
					tc.answer(r)
				}
			})
			s.expect(s.decide(), "a", tc.reason, tc.text)
		})
	}
}

// TestANewKernelWaitsForNobodysTurn: it is a first load, and the kernels before keep what they
// have.
func TestANewKernelWaitsForNobodysTurn(t *testing.T) {
	s := newScene(t, "a", "b")
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
		Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}}
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.deliver(s.decide(), nil)
	s.facts.Targets[1].Claims = map[string]string{KernelsClaim: debian.Kernel + "\n" + newer.Kernel}
	s.declare()
	if d := s.decide(); d.Send["b"] != nil {
		t.Error("b was sent a Module whose image is not there")
	} else {
		s.expect(d, "b", v1beta1.ReasonBuilding, newer.Kernel)
	}
	s.make("sha256:1")
	s.deliver(s.decide(), func(cluster string, r *Report) { // the canary has failed meanwhile
		if cluster == "a" {
			r.Ready, r.Reason = metav1.ConditionFalse, v1beta1.ReasonLoadFailed
		}
	})
	if got := len(s.facts.Parcels["b"].Module.Spec.ModuleLoader.Container.KernelMappings); got != 2 {
		t.Errorf("b knows %d kernels", got)
	}
}

// TestAKernelThatFallsOutOfTheClaimKeepsItsMapping: its nodes still run it. It goes with the next
// declaration, in its cluster's turn.
func TestAKernelThatFallsOutOfTheClaimKeepsItsMapping(t *testing.T) {
	s := newScene(t, "a", "b")
	both := map[string]string{KernelsClaim: debian.Kernel + "\n" + newer.Kernel}
	s.facts.Targets[0].Claims, s.facts.Targets[1].Claims = both, both
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	kernels := func(cluster string) (names []string) {
		for _, m := range s.facts.Parcels[cluster].Module.Spec.ModuleLoader.Container.KernelMappings {
			names = append(names, m.Literal+" "+m.ContainerImage)
		}
		slices.Sort(names)
		return names
	}
	before := kernels("a")
	if len(before) != 2 {
		t.Fatalf("a knows %v", before)
	}

	s.facts.Targets[0].Claims = map[string]string{KernelsClaim: debian.Kernel}
	for range 2 {
		s.declare()
		d := s.decide()
		s.deliver(d, nil)
		s.expect(d, "a", v1beta1.ReasonReady, "")
		if now := kernels("a"); !slices.Equal(now, before) {
			t.Errorf("without its line in the claim, a knows %v instead of %v", now, before)
		}
	}
	// What somebody adds to a cluster's Module does not stay: not for a kernel that the hub maps to
	// nothing, and not for one that the cluster reports.
	edited := s.facts.Parcels["a"].Module.DeepCopy()
	container := &edited.Spec.ModuleLoader.Container
	container.KernelMappings = append(container.KernelMappings,
		v1beta1.KernelMapping{Literal: other.Kernel, ContainerImage: "example.com/evil"})
	s.facts.Parcels["a"] = Parcel{Module: edited}
	s.deliver(s.decide(), nil)
	if now := kernels("a"); !slices.Equal(now, before) {
		t.Errorf("after an edit, a knows %v instead of %v", now, before)
	}
	s.facts.Targets[0].Claims = both
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	if now := kernels("a"); !slices.Equal(now, before) {
		t.Errorf("with its line again, a knows %v", now)
	}

	// Another declaration knows what is reported then, and waits for its wave.
	s.facts.Targets[0].Claims = map[string]string{KernelsClaim: debian.Kernel}
	s.facts.Module.Spec.ModuleSpec.ModuleLoader.Container.Modprobe.Parameters = []string{"debug=1"}
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.deliver(s.decide(), nil)
	if now := kernels("a"); len(now) != 1 || !strings.HasPrefix(now[0], debian.Kernel) {
		t.Errorf("for another declaration, a knows %v", now)
	}
}

// TestKeptMappingsAreBounded: of too many, the older kernels go.
func TestKeptMappingsAreBounded(t *testing.T) {
	module := func(from, to int) *v1beta1.Module {
		m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{ModuleLoader: &v1beta1.ModuleLoaderSpec{}}}
		for i := from; i < to; i++ {
			m.Spec.ModuleLoader.Container.KernelMappings = append(m.Spec.ModuleLoader.Container.KernelMappings,
				v1beta1.KernelMapping{Literal: fmt.Sprintf("6.1.0-%03d", i)})
		}
		if err := revise(m, "1"); err != nil {
			t.Fatal(err)
		}
		return m
	}
	got, err := Keep(built(), module(0, maxKept), module(maxKept, maxKept+1), nil)
	if err != nil {
		t.Fatal(err)
	}
	mappings := got.Spec.ModuleLoader.Container.KernelMappings
	if len(mappings) != maxKept || slices.ContainsFunc(mappings, func(m v1beta1.KernelMapping) bool { return m.Literal == "6.1.0-000" }) {
		t.Errorf("%d are kept, from %s", len(mappings), mappings[len(mappings)-1].Literal)
	}
}

// TestABadBuildStaysInTheFirstWave, also where its image has the same name as the one before.
func TestABadBuildStaysInTheFirstWave(t *testing.T) {
	s := newScene(t, "a", "b")
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
		Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}}
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.deliver(s.decide(), nil)
	before := s.facts.Parcels["b"].Module.Annotations[RevisionAnnotation]
	s.make("sha256:2")
	for range 3 {
		s.deliver(s.decide(), func(cluster string, r *Report) {
			if cluster == "a" {
				r.Ready, r.Reason = metav1.ConditionFalse, v1beta1.ReasonLoadFailed
			}
		})
	}
	if now := s.facts.Parcels["b"].Module.Annotations[RevisionAnnotation]; now != before {
		t.Error("the second wave has the bad build")
	}
	d := s.decide()
	if d.Order.Wave != "canary" || len(d.Order.Failed) != 1 {
		t.Errorf("order %+v", d.Order)
	}
	s.expect(d, "a", v1beta1.ReasonLoadFailed, "")
	s.expect(d, "b", v1beta1.ReasonRollingOut, "turn")
}

// TestTooManyNewKernels: what was sent stays, and what more is named waits.
func TestTooManyNewKernels(t *testing.T) {
	s := newScene(t, "a")
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.facts.Targets[0].Claims = map[string]string{KernelsClaim: debian.Kernel + "\n" + newer.Kernel}
	s.facts.Limited = map[string]map[Platform]bool{"a": {newer: true}}
	s.make("sha256:1")
	d := s.decide()
	s.expect(d, "a", v1beta1.ReasonBuilding, "within an hour")
	if s.sent(d) != "" || len(d.Recall) > 0 {
		t.Errorf("sent to %q, recalled from %v", s.sent(d), d.Recall)
	}
}

func TestWhatIsNotSelectedIsRecalled(t *testing.T) {
	s := newScene(t, "a", "b")
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.facts.Targets = s.facts.Targets[:1]
	if d := s.decide(); strings.Join(d.Recall, " ") != "b" || s.sent(d) != "a" {
		t.Errorf("recalled from %v, sent to %q", d.Recall, s.sent(d))
	}
}
