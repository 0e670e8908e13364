// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func roleOf(module string) map[string]string {
	return map[string]string{v1beta1.RoleLabel: "device-plugin", v1beta1.ModuleNameLabel: module}
}

// pod runs a ready pod of the given role on a node; owner is its controller or nil.
func (s *scene) pod(t *testing.T, node, name string, labels map[string]string, owner *metav1.OwnerReference) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "main", Image: "example.com/plugin:1"}},
		},
	}
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if err := s.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := s.admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// daemonSet is a DaemonSet with the labels of the Module's device plugin, controlled by owner.
func (s *scene) daemonSet(t *testing.T, name string, owner *metav1.OwnerReference) *metav1.OwnerReference {
	t.Helper()
	labels := roleOf("nic")
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/plugin:1"}}},
			},
		},
	}
	if owner != nil {
		ds.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if err := s.admin.Create(t.Context(), ds); err != nil {
		t.Fatal(err)
	}
	return metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
}

// TestInvalidLabelsDoNotFreezeANode: whoever may create pods or reports a version must not be able
// to keep all other Modules' labels as they are. One key that is too long refuses the whole patch.
func TestInvalidLabelsDoNotFreezeANode(t *testing.T) {
	s := newScene(t, 1)
	start(t, s.Env)
	name := s.nodes[0]
	s.pod(t, name, "bare", roleOf(strings.Repeat("m", 60)), nil)
	s.order(t, name)
	status := s.live("boot-1")
	status.Modules[0].Version = "1.0+git"
	s.report(t, name, status)
	s.awaitLabel(t, name, v1beta1.ReadyLabel(s.namespace, "nic"), true)
	s.awaitLabel(t, name, v1beta1.VersionReadyLabel(s.namespace, "nic"), false)
}

// TestOnlyPodsOfTheModulesDaemonSetCount: the labels of a pod prove nothing.
func TestOnlyPodsOfTheModulesDaemonSetCount(t *testing.T) {
	s := newScene(t, 3)
	start(t, s.Env)
	s.change(t, func(m *v1beta1.Module) {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1"}}
	})
	for _, name := range s.nodes {
		s.order(t, name)
		s.report(t, name, s.live("boot-1"))
	}
	foreign := s.daemonSet(t, "foreign", nil)
	ours := s.daemonSet(t, "nic-device-plugin", metav1.NewControllerRef(s.module, v1beta1.GroupVersion.WithKind("Module")))
	s.pod(t, s.nodes[0], "bare", roleOf("nic"), nil)
	s.pod(t, s.nodes[1], "foreign", roleOf("nic"), foreign)
	s.pod(t, s.nodes[2], "ours", roleOf("nic"), ours)

	label := v1beta1.DevicePluginReadyLabel(s.namespace, "nic")
	s.awaitLabel(t, s.nodes[2], label, true)
	want := "The device plugin is ready on 1 of 3 nodes; not on " + s.nodes[0] + ", " + s.nodes[1]
	got := s.awaitMessage(t, v1beta1.ConditionDevicesReady, want)
	if got.Status != metav1.ConditionFalse || got.Reason != v1beta1.ReasonDevicesPending {
		t.Errorf("condition %s %s", got.Status, got.Reason)
	}
	s.awaitLabel(t, s.nodes[0], label, false)
	s.awaitLabel(t, s.nodes[1], label, false)
}
