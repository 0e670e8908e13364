// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/placement"
)

const (
	draDriver = "nic.example.com"
	thisBoot  = "boot-1"
)

// heldOn is a claim by which a pod holds a device on a node.
func heldOn(node string) resourcev1.ResourceClaim {
	c := resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: "claim"}}
	c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Driver: draDriver}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}}
	return c
}

// driven is a scene in which the kernel module of a Module with a DRA driver is live on a Ready
// node as it was ordered.
func driven(t *testing.T) *scene {
	t.Helper()
	m := given()
	m.Spec.DRA = &v1beta1.DRASpec{DriverName: draDriver}
	s := &scene{module: m, node: emptyNode(), devices: Devices{Driver: draDriver, Pods: map[string]DriverPod{"n": {Name: "team/nic-dra-1"}}}}
	s.node.Node.Status.NodeInfo.BootID = thisBoot
	order := *aimed(t)
	s.node.Config.Spec.Modules = []v1beta1.NodeModuleSpec{order}
	s.node.Config.Status.Modules = []v1beta1.NodeModuleStatus{{
		ModuleItem: order.ModuleItem, Config: &order.Config, BootID: thisBoot, Observed: &v1beta1.ObservedModule{},
	}}
	s.node.Config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: order.Delivery.ID}}
	return s
}

func deleted(s *scene) { s.module.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Second)} }

// changed asks for another build, which the node holds already.
func changed(t *testing.T) func(*scene) {
	t.Helper()
	return func(s *scene) {
		s.module.Generation = 2
		s.module.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r/nic:2"
		want := desired.New(s.module).On(running, "amd64").State
		s.node.Config.Status.Artifacts = append(s.node.Config.Status.Artifacts, v1beta1.NodeArtifact{ID: want.Delivery})
	}
}

func claimedThere(s *scene)    { s.devices.Claims = []resourcev1.ResourceClaim{heldOn("n")} }
func claimedAway(s *scene)     { s.devices.Claims = []resourcev1.ResourceClaim{heldOn("other")} }
func driverGone(s *scene)      { s.devices.Pods = nil }
func isDraining(s *scene)      { s.node.Config.Spec.Modules[0].State = v1beta1.NodeModuleDraining }
func inAnEarlierBoot(s *scene) { s.node.Config.Status.Modules[0].BootID = "boot-0" }

func TestAKernelModuleGoesAfterItsDRADriver(t *testing.T) {
	const (
		draining = v1beta1.NodeModuleDraining
		absent   = v1beta1.NodeModuleAbsent
		present  = v1beta1.NodeModulePresent
	)
	reload := changed(t)
	cases := map[string]struct {
		given []func(*scene)
		then  v1beta1.NodeModuleState // written; "-": nothing is
	}{
		"deleted, a claim there":              {[]func(*scene){deleted, claimedThere}, "-"},
		"deleted, a claim elsewhere":          {[]func(*scene){deleted, claimedAway}, draining},
		"deleted, no claim":                   {[]func(*scene){deleted}, draining},
		"draining, the driver is there":       {[]func(*scene){deleted, isDraining}, "-"},
		"draining, a claim came":              {[]func(*scene){deleted, isDraining, claimedThere}, present},
		"draining, a claim came, driver gone": {[]func(*scene){deleted, isDraining, claimedThere, driverGone}, present},
		"drained":                             {[]func(*scene){deleted, isDraining, driverGone}, absent},
		"another build, a claim there":        {[]func(*scene){reload, claimedThere}, "-"},
		"another build, no claim":             {[]func(*scene){reload}, draining},
		"another build, drained":              {[]func(*scene){reload, isDraining, driverGone}, present},
		"draining, and wanted again":          {[]func(*scene){isDraining}, present},
		"not in the kernel in this boot":      {[]func(*scene){deleted, claimedThere, inAnEarlierBoot}, absent},
		"nothing to change":                   {[]func(*scene){claimedThere}, "-"},
		"the Module's patience is at its end": {[]func(*scene){claimedThere, func(s *scene) { deletedLongAgo(s) }}, absent},
		"a node that is not Ready": {[]func(*scene){deleted, claimedThere,
			func(s *scene) { s.node.Node.Status.Conditions = nil }}, absent},
		"a driver of a cluster that does not serve": {[]func(*scene){deleted, claimedThere, func(s *scene) { s.devices.Driver = "" }}, absent},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := driven(t)
			for _, change := range tc.given {
				change(s)
			}
			out := s.play(t)
			got := out.State
			if !out.Writes {
				got = "-"
			}
			if got != tc.then || out.Creates {
				t.Errorf("writes %q instead of %q; %+v", got, tc.then, out)
			}
		})
	}
}

// TestATurnThatIsCalledOffUncordons: a node that was cordoned for a change that is held back, such
// as by a strike elsewhere, is not left so. One in the middle of a change is, and a paused one.
func TestATurnThatIsCalledOffUncordons(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(*scene, *Aim)
		want  bool
	}{
		"before its turn":           {func(*scene, *Aim) {}, true},
		"in the middle of a change": {func(s *scene, _ *Aim) { s.node.Config.Status.Modules = nil }, false},
		"paused":                    {func(_ *scene, a *Aim) { a.Wishes.Paused = true }, false},
		"cordoned by others":        {func(s *scene, _ *Aim) { s.node.Node.Annotations = nil }, false},
	} {
		s, a := driven(t), Aim{Keep: true}
		s.module.Spec.DRA, s.devices = nil, Devices{}
		s.module.Spec.Rollout = &v1beta1.RolloutSpec{Drain: v1beta1.DrainNode}
		s.node.Node.Annotations = map[string]string{v1beta1.CordonedAnnotation: key.String()}
		s.node.Node.Spec.Unschedulable = true
		tc.given(s, &a)
		s.node.Read(key, s.node.Config)
		p := Pass{Key: key, Module: s.module, Now: noon}
		if got := p.Drain(&s.node, &a, &Turn{}, &Delivery{}).Uncordon; got != tc.want {
			t.Errorf("%s: it is uncordoned: %v", name, got)
		}
	}
}

// TestATakenOverOrderKeepsItsDRADriver: what another operator has loaded of the same build, the
// agent adopts or does not touch. Nothing leaves for that, and pods keep their devices.
func TestATakenOverOrderKeepsItsDRADriver(t *testing.T) {
	seen := func(delivery string) func(*scene) {
		return func(s *scene) { s.node.Config.Status.Modules[0].Observed = &v1beta1.ObservedModule{Delivery: delivery} }
	}
	adopts := outcome{Writes: true, Creates: true}
	drains := outcome{Writes: true, Taints: true, State: v1beta1.NodeModuleDraining}
	cases := map[string]struct {
		given []func(*scene)
		then  outcome
	}{
		"the same build":                      {nil, adopts},
		"the same build, a claim there":       {[]func(*scene){claimedThere}, adopts},
		"another build":                       {[]func(*scene){changed(t)}, drains},
		"another build, a claim there":        {[]func(*scene){changed(t), claimedThere}, outcome{Taints: true, Told: v1beta1.ReasonInUse}},
		"our agent has loaded it":             {[]func(*scene){seen(aimed(t).Delivery.ID), claimedThere}, adopts},
		"our agent has loaded an earlier one": {[]func(*scene){seen("earlier")}, drains},
		"our agent has seen it, built in":     {[]func(*scene){seen("")}, adopts},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := driven(t)
			s.node.Config.Spec.Modules[0].Delivery = nil
			s.node.Config.Status.Modules[0].Observed, s.node.Config.Status.Artifacts = nil, nil
			for _, change := range tc.given {
				change(s)
			}
			out := s.play(t)
			got := outcome{Writes: out.Writes, Creates: out.Creates, Taints: out.Taints, State: out.State, Told: out.Told}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func deletedLongAgo(s *scene) {
	s.module.DeletionTimestamp = &metav1.Time{Time: noon.Add(-placement.Patience(s.module))}
}

// TestADriverThatDoesNotEndIsNamed: a minute after its pod should have ended, and not before.
func TestADriverThatDoesNotEndIsNamed(t *testing.T) {
	ends := func(at time.Time) func(*scene) {
		return func(s *scene) { s.devices.Pods = map[string]DriverPod{"n": {Name: "team/nic-dra-1", Ends: at}} }
	}
	for name, tc := range map[string]struct {
		given []func(*scene)
		then  outcome
	}{
		"nobody has deleted it": {[]func(*scene){changed(t), isDraining}, outcome{Taints: true}},
		"its time is not over":  {[]func(*scene){changed(t), isDraining, ends(noon.Add(time.Second - time.Minute))}, outcome{Taints: true}},
		"its time is over": {[]func(*scene){changed(t), isDraining, ends(noon.Add(-time.Minute))},
			outcome{Taints: true, Told: v1beta1.ReasonInUse}},
		"its time is over, of a Module that leaves": {[]func(*scene){deleted, isDraining, ends(noon.Add(-time.Minute))},
			outcome{Taints: true, Told: v1beta1.ReasonInUse}},
		"it has ended": {[]func(*scene){changed(t), isDraining, driverGone},
			outcome{Writes: true, Taints: true, State: v1beta1.NodeModulePresent}},
	} {
		t.Run(name, func(t *testing.T) {
			s := driven(t)
			for _, change := range tc.given {
				change(s)
			}
			out := s.play(t)
			got := outcome{Writes: out.Writes, Taints: out.Taints, State: out.State, Told: out.Told}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
	p := Pass{Now: noon, Devices: Devices{Driver: draDriver}}
	const want = "pod team/nic-dra-1 of the DRA driver nic.example.com was to end by 2024-01-01T00:00:00Z and has not"
	if got := p.lingers(DriverPod{Name: "team/nic-dra-1", Ends: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)}); got == nil ||
		!strings.HasPrefix(got.Message, want) {
		t.Errorf("it tells %+v", got)
	}
}

func TestWhatHoldsANodeIsNamed(t *testing.T) {
	got := claimed(draDriver, []string{"a/1", "b/2", "c/3", "d/4"})
	want := "pods hold devices of nic.example.com by ResourceClaims a/1, b/2, c/3 and 1 more"
	if diff := cmp.Diff(want, got.Message); diff != "" || got.Reason != v1beta1.ReasonInUse {
		t.Errorf("problem (-want +got):\n%s", diff)
	}
}
