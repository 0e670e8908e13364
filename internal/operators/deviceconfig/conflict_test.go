// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/kit"
)

const conflicting = "!" + v1alpha1.ReasonConflictingNodeSelector

// TestConflictingNodeSelector: who comes to a node that is taken is told whose it is, and gets
// nothing, until the other one leaves.
func TestConflictingNodeSelector(t *testing.T) {
	s := newScene(t)
	shared := s.node("a", "b")
	s.node("c")
	s.start()
	s.create(s.deviceConfig("first", "a"))
	s.load("first", 1, 1)
	s.awaitReady("first", kit.ReasonReconciled)
	s.create(s.deviceConfig("third", "c"))
	s.load("third", 1, 1)

	mark := s.env.Mark(t)
	second := s.create(s.deviceConfig("second", "b"))
	s.awaitReady("second", conflicting)
	if got := s.message("second"); !strings.Contains(got, s.namespace+"/first") || !strings.Contains(got, shared.Name) {
		t.Errorf("the message names neither DeviceConfig first nor node %s: %s", shared.Name, got)
	}
	if got := s.get("second"); s.module("second") != nil || len(got.Finalizers) > 0 ||
		!meta.IsStatusConditionTrue(got.Status.Conditions, kit.ConditionErrored) {
		t.Errorf("Module %v, finalizers %v, conditions %+v", s.module("second"), got.Finalizers, got.Status.Conditions)
	}
	for _, r := range s.env.Requests(t, mark) {
		if r.Ours() && r.IsWrite() && r.ObjectRef.Namespace == s.namespace &&
			(r.ObjectRef.Resource == "modules" || r.ObjectRef.Resource == "serviceaccounts") {
			t.Errorf("a write in spite of the conflict: %s %s", r.Verb, r.RequestURI)
		}
	}
	s.awaitReady("first", kit.ReasonReconciled)
	s.awaitReady("third", kit.ReasonReconciled)
	s.await("one warning", "second", func() bool { return s.events(second)["Warning "+v1alpha1.ReasonConflictingNodeSelector] == 1 })

	t.Run("a DeviceConfig of another namespace counts too", func(t *testing.T) {
		other := *s
		other.T, other.namespace = t, s.env.Namespace(t)
		d := other.deviceConfig("far", "a")
		d.Spec.NodeSelector = s.pool("b")
		other.create(d)
		other.awaitReady("far", conflicting)
	})
	s.must(s.admin.Delete(t.Context(), s.get("first")))
	s.load("second", 1, 1)
	s.awaitReady("second", kit.ReasonReconciled)
}

// TestLabelsOfNodesAreFollowed: labels make a conflict and end it, and a Module that is there stays
// as it is meanwhile.
func TestLabelsOfNodesAreFollowed(t *testing.T) {
	s := newScene(t)
	one := s.node("a")
	s.node("b")
	s.start()
	for _, of := range [][2]string{{"older", "a"}, {"younger", "b"}} { // in one second perhaps, but then the name decides
		s.create(s.deviceConfig(of[0], of[1]))
		s.load(of[0], 1, 1)
		s.awaitReady(of[0], kit.ReasonReconciled)
	}

	s.label(one, s.pool("b"))
	s.awaitReady("younger", conflicting)
	s.awaitReady("older", kit.ReasonReconciled)

	was := s.module("younger")
	s.change("younger", func(spec *v1alpha1.DeviceConfigSpec) { spec.DriverVersion = "2.0" })
	s.awaitReady("younger", conflicting)
	if is := s.module("younger"); is == nil || is.Generation != was.Generation || is.UID != was.UID {
		t.Errorf("the loser's Module has changed: %+v", is)
	}

	s.label(one, map[string]string{slices.Collect(maps.Keys(s.pool("b")))[0]: "no"})
	s.await("the new version", "younger", func() bool {
		return strings.HasSuffix(s.module("younger").Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage, ":2.0-${KERNEL_FULL_VERSION}")
	})
}

// label changes labels of a node.
func (s *scene) label(n *corev1.Node, labels map[string]string) {
	s.Helper()
	before := n.DeepCopy()
	maps.Copy(n.Labels, labels)
	s.must(s.admin.Patch(s.Context(), n, client.MergeFrom(before)))
}

// TestSelectorThatMovesOntoATakenNode is refused, and the Module stays where it was.
func TestSelectorThatMovesOntoATakenNode(t *testing.T) {
	s := newScene(t)
	s.node("a")
	s.node("b")
	s.start()
	for _, pool := range []string{"a", "b"} {
		s.create(s.deviceConfig(pool, pool))
		s.load(pool, 1, 1)
		s.awaitReady(pool, kit.ReasonReconciled)
	}
	s.change("a", func(spec *v1alpha1.DeviceConfigSpec) { spec.NodeSelector = s.pool("b") })
	s.awaitReady("a", conflicting)
	if got := s.module("a").Spec.Selector; !maps.Equal(got, s.pool("a")) {
		t.Errorf("the older one's Module selects %v", got)
	}
	s.awaitReady("b", kit.ReasonReconciled)
}
