// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

// TestDeviceConfigBecomesAModule: and a ServiceAccount, and nothing else. It is as ready as the
// Module, says so once, and costs no write afterwards.
func TestDeviceConfigBecomesAModule(t *testing.T) {
	s := newScene(t)
	stop := s.start()
	d := s.deviceConfig("nic", "a")
	d.Spec.DevicePluginImage = "registry.example.com/plugin:1.0"
	s.create(d)
	s.load("nic", 1, 2)
	s.await("1 of 2 nodes", "nic", func() bool {
		return s.ready("nic") == "!"+kit.ReasonProgressing && strings.Contains(s.message("nic"), "1 of 2 nodes")
	})
	since := meta.FindStatusCondition(s.get("nic").Status.Conditions, kit.ConditionReady).LastTransitionTime
	m := s.module("nic")
	account := read(s, "nic"+serviceAccountSuffix, &corev1.ServiceAccount{})
	if account == nil || m.Spec.ModuleLoader.ServiceAccountName != account.Name {
		t.Fatalf("the Module names %s, there is %+v", m.Spec.ModuleLoader.ServiceAccountName, account)
	}
	for _, child := range []client.Object{m, account} {
		if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != d.UID {
			t.Errorf("the owner of %s is %+v", child.GetName(), owner)
		}
	}
	if !maps.Equal(m.Spec.Selector, d.Spec.NodeSelector) || m.Spec.ModuleLoader.Container.Modprobe.ModuleName != v1alpha1.DefaultModuleName ||
		m.Spec.DevicePlugin == nil || m.Spec.DevicePlugin.Container.Image != d.Spec.DevicePluginImage {
		t.Errorf("Module %+v", m.Spec)
	}
	s.nothingElse()

	s.load("nic", 2, 2)
	s.awaitReady("nic", kit.ReasonReconciled)
	conditions := s.get("nic").Status.Conditions
	if errored := meta.FindStatusCondition(conditions, kit.ConditionErrored); len(conditions) != 2 || errored == nil ||
		errored.Status != metav1.ConditionFalse || errored.Message != "" {
		t.Errorf("conditions %+v", conditions)
	}
	if now := meta.FindStatusCondition(conditions, kit.ConditionReady).LastTransitionTime; now.Before(&since) {
		t.Errorf("the transition was at %s, before %s", now, since)
	}
	if !slices.Contains(s.get("nic").Finalizers, Finalizer) || !strings.Contains(Finalizer, "/") {
		t.Errorf("finalizers %v", s.get("nic").Finalizers)
	}

	mark := s.env.Mark(t)
	stop()
	s.start()
	probe := s.create(s.deviceConfig("probe", "probe")) // when this one is done, the restarted operator has seen the other one
	s.load(probe.Name, 1, 1)
	s.awaitReady(probe.Name, kit.ReasonReconciled)
	for _, r := range s.env.Requests(t, mark) {
		if r.Ours() && r.IsWrite() && r.ObjectRef.Namespace == s.namespace && strings.HasPrefix(r.ObjectRef.Name, "nic") {
			t.Errorf("a write that nobody needed: %s %s", r.Verb, r.RequestURI)
		}
	}
	s.await("one event", "nic", func() bool { return s.events(d)["Normal "+kit.ReasonReconciled] > 0 })
	if got := s.events(d); got["Normal "+kit.ReasonReconciled] != 1 {
		t.Errorf("events %v", got)
	}
	s.env.AssertNoMasters(t)
}

// nothingElse: what loads kernel modules and offers devices is none of this operator's business.
func (s *scene) nothingElse() {
	s.Helper()
	for _, list := range []client.ObjectList{
		&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.PodList{}, &batchv1.JobList{}, &corev1.SecretList{}, &corev1.ServiceList{},
		&v1beta1.NodeModulesConfigList{},
	} {
		s.must(s.admin.List(s.Context(), list, client.InNamespace(s.namespace)))
		if n := meta.LenList(list); n != 0 {
			s.Errorf("%d objects of a %T", n, list)
		}
	}
	created := map[string]bool{}
	for _, r := range s.env.Requests(s.T, 0) {
		if r.Ours() && r.IsWrite() && r.ObjectRef.Namespace == s.namespace {
			created[r.Resource()] = true
		}
	}
	want := []string{"deviceconfigs", "deviceconfigs/status", "events", "modules", "serviceaccounts"}
	for _, resource := range slices.Sorted(maps.Keys(created)) {
		if !slices.Contains(want, resource) {
			s.Errorf("the operator writes %s", resource)
		}
	}
}

// TestModuleIsHealed: what somebody changes or deletes is put right, what others add stays, and
// every field's change reaches the Module.
func TestModuleIsHealed(t *testing.T) {
	s := newScene(t)
	s.start()
	d := s.create(s.deviceConfig("nic", "a"))
	s.load("nic", 1, 1)
	s.awaitReady("nic", kit.ReasonReconciled)

	m := s.module("nic")
	uid := m.UID
	before := m.DeepCopy()
	for key := range m.Spec.Selector {
		m.Spec.Selector[key] = "no"
	}
	m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "registry.example.com/other:1"
	m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"theirs"}
	s.must(s.admin.Patch(t.Context(), m, client.MergeFrom(before)))
	s.await("the Module's fields", "nic", func() bool {
		m := s.module("nic")
		return maps.Equal(m.Spec.Selector, d.Spec.NodeSelector) &&
			m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage == "registry.example.com/driver:1.0-${KERNEL_FULL_VERSION}"
	})
	if got := s.module("nic").Spec.ModuleLoader.Container.InTreeModulesToRemove; !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("a field that is another writer's: %v", got)
	}
	s.must(s.admin.Delete(t.Context(), s.module("nic")))
	s.await("another Module", "nic", func() bool { m := s.module("nic"); return m != nil && m.UID != uid })
	s.must(s.admin.Delete(t.Context(), read(s, "nic"+serviceAccountSuffix, &corev1.ServiceAccount{})))
	s.await("another ServiceAccount", "nic", func() bool { return read(s, "nic"+serviceAccountSuffix, &corev1.ServiceAccount{}) != nil })

	s.change("nic", func(spec *v1alpha1.DeviceConfigSpec) {
		spec.DriverImage, spec.DriverVersion, spec.NodeSelector = "registry.example.com/new", "2.0", s.pool("b")
		spec.ModuleName, spec.KernelRegexp, spec.DevicePluginImage = "vendor", "^6", "registry.example.com/plugin:1"
		spec.ServiceAccountName = "default"
	})
	s.must(s.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "default"}}))
	s.await("all fields", "nic", func() bool {
		spec := s.module("nic").Spec
		mapping := spec.ModuleLoader.Container.KernelMappings[0]
		return maps.Equal(spec.Selector, s.pool("b")) && mapping.ContainerImage == "registry.example.com/new:2.0-${KERNEL_FULL_VERSION}" &&
			mapping.Regexp == "^6" &&
			spec.ModuleLoader.Container.Modprobe.ModuleName == "vendor" && spec.DevicePlugin != nil &&
			spec.ModuleLoader.ServiceAccountName == "default"
	})
	s.await("its own ServiceAccount to go", "nic", func() bool { return read(s, "nic"+serviceAccountSuffix, &corev1.ServiceAccount{}) == nil })
	s.change("nic", func(spec *v1alpha1.DeviceConfigSpec) { spec.DevicePluginImage = "" })
	s.await("the device plugin to go", "nic", func() bool { return s.module("nic").Spec.DevicePlugin == nil })
}

// TestDisjointDeviceConfigs: each has its own Module, of its own image and version, and both become
// ready.
func TestDisjointDeviceConfigs(t *testing.T) {
	s := newScene(t)
	s.node("a")
	s.node("b")
	s.start()
	one, two := s.deviceConfig("one", "a"), s.deviceConfig("two", "b")
	two.Spec.DriverImage, two.Spec.DriverVersion, two.Spec.ModuleName = "registry.example.com/other", "2.0", "other"
	got := map[string]string{}
	for _, d := range []*v1alpha1.DeviceConfig{one, two} {
		s.create(d)
		s.load(d.Name, 1, 1)
		s.awaitReady(d.Name, kit.ReasonReconciled)
		got[d.Name] = s.module(d.Name).Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage
	}
	want := map[string]string{
		"one": "registry.example.com/driver:1.0-${KERNEL_FULL_VERSION}", "two": "registry.example.com/other:2.0-${KERNEL_FULL_VERSION}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	var modules v1beta1.ModuleList
	s.must(s.admin.List(t.Context(), &modules, client.InNamespace(s.namespace)))
	if len(modules.Items) != 2 {
		t.Errorf("%d Modules for two DeviceConfigs", len(modules.Items))
	}
}

// TestServiceAccountOfTheUser: one that is named has to be there; until then nothing is written,
// and nobody has to ask again.
func TestServiceAccountOfTheUser(t *testing.T) {
	s := newScene(t)
	s.start()
	d := s.deviceConfig("nic", "a")
	d.Spec.ServiceAccountName = "mine"
	s.create(d)
	s.awaitReady("nic", "!"+v1alpha1.ReasonServiceAccountNotFound)
	if m := s.module("nic"); m != nil {
		t.Errorf("there is a Module: %+v", m)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "mine"}}
	s.must(s.admin.Create(t.Context(), account))
	s.load("nic", 1, 1)
	s.awaitReady("nic", kit.ReasonReconciled)
	if got := s.events(d); got["Warning "+v1alpha1.ReasonServiceAccountNotFound] != 1 {
		t.Errorf("events %v", got)
	}
}
