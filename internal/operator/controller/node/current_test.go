// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// change updates the Module, again when somebody else has written it meanwhile.
func (s *scene) change(t *testing.T, edit func(*v1beta1.Module)) {
	t.Helper()
	eventually(t, "update the Module", func(ctx context.Context) (bool, error) {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), s.module); err != nil {
			return false, err
		}
		edit(s.module)
		err := s.admin.Update(ctx, s.module)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// awaitMessage waits until a condition says exactly that.
func (s *scene) awaitMessage(t *testing.T, kind, message string) metav1.Condition {
	t.Helper()
	got := &metav1.Condition{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("condition %s says %q", kind, got.Message)
		}
	})
	eventually(t, kind+": "+message, func(ctx context.Context) (bool, error) {
		err := s.admin.Get(ctx, client.ObjectKeyFromObject(s.module), s.module)
		if c := meta.FindStatusCondition(s.module.Status.Conditions, kind); c != nil {
			got = c
		}
		return got.Message == message, err
	})
	return *got
}

// asked is the delivery that the Module asks for now.
func (s *scene) asked(t *testing.T) string {
	t.Helper()
	c := config()
	id, err := delivery.ID(s.module, &c, "")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// orders gives the node an order with a delivery, or changes the one that it has.
func (s *scene) orders(t *testing.T, name, id string, config v1beta1.ModuleConfig) {
	t.Helper()
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, nmc); err != nil {
		t.Fatal(err)
	}
	nmc.Spec.Modules = []v1beta1.NodeModuleSpec{{ModuleItem: s.item(), Config: config, Delivery: &v1beta1.Delivery{ID: id}}}
	if err := s.admin.Update(t.Context(), nmc); err != nil {
		t.Fatal(err)
	}
}

// holding adds the deliveries that the node holds.
func holding(status v1beta1.NodeModulesConfigStatus, ids ...string) v1beta1.NodeModulesConfigStatus {
	for _, id := range ids {
		status.Artifacts = append(status.Artifacts, v1beta1.NodeArtifact{ID: id, Digest: "d"})
	}
	return status
}

// TestUpgradeThatNoNodeHasYet: what is live is compared with the Module, not with an order that may
// be older. The numbers are about what serves.
func TestUpgradeThatNoNodeHasYet(t *testing.T) {
	s := newScene(t, 2)
	start(t, s.Env)
	for _, name := range s.nodes {
		s.order(t, name)
		s.report(t, name, s.live("boot-1"))
	}
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)

	s.change(t, func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.ContainerImage = "example.com/nic2:$KERNEL_VERSION"
	})
	got := s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonLoading)
	if got.ObservedGeneration != s.module.Generation {
		t.Errorf("the condition is about generation %d, not %d", got.ObservedGeneration, s.module.Generation)
	}
	want := v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 2, AvailableNumber: 2}
	if diff := cmp.Diff(want, s.module.Status.ModuleLoader); diff != "" {
		t.Errorf("moduleLoader (-want +got):\n%s", diff)
	}
	s.tell(t, v1beta1.ProblemDeliveries, map[string]reasons.Problem{
		s.nodes[1]: {Reason: v1beta1.ReasonDeliveryRefused, Message: "exceeded quota"},
	})
	got = s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonDeliveryRefused)
	if !strings.Contains(got.Message, "DeliveryRefused on "+s.nodes[1]+": exceeded quota") ||
		!strings.Contains(got.Message, "another build is live on 2 nodes") {
		t.Errorf("message %q", got.Message)
	}
	// The old driver goes on serving until the node can change.
	for _, name := range s.nodes {
		s.awaitLabel(t, name, v1beta1.ReadyLabel(s.namespace, "nic"), true)
	}

	next := config()
	next.ContainerImage = strings.Replace(next.ContainerImage, "/nic:", "/nic2:", 1)
	c := next
	id, err := delivery.ID(s.module, &c, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.nodes {
		s.orders(t, name, id, next)
		status := holding(s.live("boot-1"), id)
		status.Modules[0].Config = &next
		s.report(t, name, status)
	}
	s.tell(t, v1beta1.ProblemDeliveries, nil)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
}

// TestRebuildUnderTheSameName: nothing but the delivery tells the new image from the old one.
func TestRebuildUnderTheSameName(t *testing.T) {
	s := newScene(t, 1)
	start(t, s.Env)
	name, first := s.nodes[0], s.asked(t)
	s.order(t, name)
	s.orders(t, name, first, config())
	s.report(t, name, holding(s.live("boot-1"), first))
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)

	s.change(t, func(m *v1beta1.Module) { m.Spec.ImageRebuildTriggerGeneration = ptr.To(1) })
	second := s.asked(t)
	if first == second {
		t.Fatal("the rebuild asks for the same delivery")
	}
	unready := func(reason string) {
		t.Helper()
		s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, reason)
		if s.module.Status.ImageRebuildTriggerGeneration != nil {
			t.Errorf("the rebuild counts as done: %d", *s.module.Status.ImageRebuildTriggerGeneration)
		}
	}
	unready(v1beta1.ReasonRollingOut)
	s.orders(t, name, second, config())
	failed := holding(s.live("boot-1"), first, second)
	failed.Attempts = s.failed(v1beta1.ReasonSignatureRejected, "key rejected").Attempts
	s.report(t, name, failed)
	unready(v1beta1.ReasonSignatureRejected)

	// That the failure is over is all that changes: what has the delivery's content is live.
	s.report(t, name, holding(s.live("boot-1"), second))
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	if diff := cmp.Diff(ptr.To(1), s.module.Status.ImageRebuildTriggerGeneration); diff != "" {
		t.Errorf("imageRebuildTriggerGeneration (-want +got):\n%s", diff)
	}
}

// TestTheSameBuildUnderAnotherDelivery: the agent keeps what is live, and all that changes in its
// report is what it holds.
func TestTheSameBuildUnderAnotherDelivery(t *testing.T) {
	s := newScene(t, 1)
	start(t, s.Env)
	name, first := s.nodes[0], s.asked(t)
	s.order(t, name)
	s.orders(t, name, first, config())
	before := holding(s.live("boot-1"), first)
	s.report(t, name, before)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
	s.change(t, func(m *v1beta1.Module) { m.Spec.ImageRebuildTriggerGeneration = ptr.To(1) })
	s.orders(t, name, s.asked(t), config())
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonLoading)
	s.report(t, name, holding(before, s.asked(t)))
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
}

// TestImageThatCannotBeNamed: a mapping matches, but its image uses a variable that the kernel does
// not give.
func TestImageThatCannotBeNamed(t *testing.T) {
	s := newScene(t, 1)
	start(t, s.Env)
	s.change(t, func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.ContainerImage = "example.com/nic:$KERNEL_RHEL_RELEASE"
	})
	s.awaitMessage(t, v1beta1.ConditionReady, "Drover cannot name the image for 1 kernel (6.1.0-56-amd64): "+
		"spec.moduleLoader.container.containerImage: variable KERNEL_RHEL_RELEASE: kernel 6.1.0-56-amd64 is not a RHEL kernel; nodes: "+
		s.nodes[0])
}
