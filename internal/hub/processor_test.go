// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/desired"
)

// TestAnotherProcessor: what nodes of one processor load does not depend on which others there are.
func TestAnotherProcessor(t *testing.T) {
	m, arm := built(), Platform{Kernel: debian.Kernel, Architecture: "arm64"}
	pinned := map[Platform]string{debian: "example.com/nic@sha256:1", arm: "example.com/nic@sha256:2"}
	of := func(platforms ...Platform) *v1beta1.Module {
		t.Helper()
		module, err := ForCluster(m, platforms, pinned, "1")
		if err != nil {
			t.Fatal(err)
		}
		return module
	}
	loads := func(what string, module *v1beta1.Module, p Platform) string {
		t.Helper()
		a := desired.New(module).On(p.Kernel, p.Architecture)
		if a.State == nil || a.State.Config.ContainerImage != pinned[p] {
			t.Errorf("%s: %s loads %+v, want %s", what, p.Architecture, a.State, pinned[p])
			return ""
		}
		return a.State.Delivery
	}
	both := of(debian, arm)
	for _, p := range []Platform{debian, arm} {
		alone := of(p)
		if had, has := loads("alone", alone, p), loads("beside the other", both, p); had != has {
			t.Errorf("%s: the delivery %s becomes %s", p.Architecture, had, has)
		}
		if !Extends(alone, both) {
			t.Errorf("%s: another processor's nodes wait for a wave", p.Architecture)
		}
		// The other one falls out of a full claim, and its nodes still run.
		kept, err := Keep(m, both, alone, []Platform{p})
		if err != nil {
			t.Fatal(err)
		}
		loads("kept", kept, debian)
		loads("kept", kept, arm)
		if !Extends(both, kept) {
			t.Errorf("%s alone: what is kept is another build", p.Architecture)
		}
	}
	if got := loads("", both, debian); got == loads("", both, arm) {
		t.Errorf("both load %s", got)
	}
	pinned[arm] = "example.com/nic@sha256:3"
	if Extends(both, of(debian, arm)) {
		t.Error("another build for one processor waits for no wave")
	}
	pinned[arm] = pinned[debian]
	if got := of(debian, arm).Spec.ModuleLoader.Container.KernelMappings; len(got) != 1 || got[0].Architecture != "" {
		t.Errorf("one image for both has the mappings %+v", got)
	}
}

// TestTheFirstNodeOfAnotherProcessor has its image made, and waits for nobody's turn. The nodes
// before it have no other delivery.
func TestTheFirstNodeOfAnotherProcessor(t *testing.T) {
	s := newScene(t, "a", "b")
	s.facts.Module.Spec.ModuleSpec.ModuleLoader.Container.ContainerImage = "example.com/nic:${KERNEL_FULL_VERSION}-${NODE_ARCH}"
	s.facts.Module.Spec.Rollout = &hubv1beta1.ClusterRollout{
		Waves: []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"name": "a"}}}}
	s.make("sha256:1")
	s.deliver(s.decide(), nil)
	s.deliver(s.decide(), nil)
	loads := func(arch string) *desired.State {
		return desired.New(s.facts.Parcels["b"].Module).On(debian.Kernel, arch).State
	}
	before := loads("amd64")
	for _, claim := range []string{"amd64/" + debian.Kernel + "\narm64/" + debian.Kernel, "arm64/" + debian.Kernel} {
		s.facts.Targets[1].Claims = map[string]string{PlatformsClaim: claim}
		s.declare()
		for _, image := range s.facts.Images {
			image.Status.Image = "example.com/nic@sha256:" + image.Spec.Architecture
			image.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
			if image.Spec.Architecture == debian.Architecture {
				image.Status.Image = before.Config.ContainerImage
			}
		}
		s.deliver(s.decide(), func(cluster string, r *Report) { // the canary has failed meanwhile
			if cluster == "a" {
				r.Ready, r.Reason = metav1.ConditionFalse, v1beta1.ReasonLoadFailed
			}
		})
		if now := loads("amd64"); now.Delivery != before.Delivery {
			t.Errorf("amd64 had %s of %s and has %s of %s", before.Delivery, before.Config.ContainerImage, now.Delivery, now.Config.ContainerImage)
		}
		if got := loads("arm64").Config.ContainerImage; got != "example.com/nic@sha256:arm64" {
			t.Errorf("arm64 has %s", got)
		}
	}
}
