// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// crd reads a definition of ours.
func crd(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile("../../../config/crd/bases/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &d.Object); err != nil {
		t.Fatal(err)
	}
	return d
}

func node(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0", KubeletVersion: "v1.36.1", ContainerRuntimeVersion: "containerd://2.1.4",
				OperatingSystem: "linux"},
		},
	}
}

func lease(name string, renewed time.Time) coordinationv1.Lease {
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: renewed},
	}}
}

func template(container, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, Containers: []corev1.Container{{Name: container, Image: image}},
	}}
}

// well is a cluster of two nodes with Drover, about which there is nothing to say.
func well(t *testing.T) *Snapshot {
	t.Helper()
	s := &Snapshot{
		Client: "v1.2.0", Server: "v1.36.3", Resources: map[schema.GroupVersionResource]bool{},
		Now: noon, ServerNow: noon, LeasesAt: noon,
		Namespaces: map[string]*corev1.Namespace{
			system: {ObjectMeta: metav1.ObjectMeta{Name: system, Labels: map[string]string{enforce: "privileged"}}},
			"team": {ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"kind": "team"}}},
		},
		Definitions: map[string]*unstructured.Unstructured{}, Policies: map[string]bool{}, Bindings: map[string]bool{},
		Endpoints: map[string]bool{}, Unseen: map[string]string{}, Trial: &Trial{},
		Operator: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: operatorName},
			Spec:   appsv1.DeploymentSpec{Template: template("operator", "registry.invalid/drover/drover-operator:1.2.0")},
			Status: appsv1.DeploymentStatus{AvailableReplicas: 1, UpdatedReplicas: 1}},
		Agents: &appsv1.DaemonSet{
			Spec:   appsv1.DaemonSetSpec{Template: template("agent", "r.example:5000/drover-agent:v1.2.0")},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberAvailable: 2, UpdatedNumberScheduled: 2},
		},
		Nodes:      []corev1.Node{node("a"), node("b")},
		NodeLeases: []coordinationv1.Lease{lease("a", noon.Add(-8*time.Second)), lease("b", noon.Add(-3*time.Second))},
	}
	for _, r := range []schema.GroupVersionResource{
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"},
		{Group: "resource.k8s.io", Version: "v1beta2", Resource: "devicetaintrules"},
	} {
		s.Resources[r] = true
	}
	for _, file := range []string{"drover.dev_moduleimages", "drover.dev_modulepolicies", "kmm.sigs.x-k8s.io_modules",
		"kmm.sigs.x-k8s.io_nodemodulesconfigs",
		"kmm.sigs.x-k8s.io_preflightvalidations"} {
		d := crd(t, file)
		s.Definitions[d.GetName()] = d
	}
	for _, name := range bound {
		s.Policies[name], s.Bindings[name] = true, true
	}
	for _, n := range s.Nodes {
		s.AgentPods = append(s.AgentPods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "agent-" + n.Name},
			Spec: corev1.PodSpec{NodeName: n.Name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	}
	return s
}

// bare is the same cluster before the installation.
func bare(s *Snapshot) {
	s.Operator, s.Agents, s.AgentPods, s.Trial = nil, nil, nil, nil
	clear(s.Definitions)
	clear(s.Policies)
	delete(s.Namespaces, system)
}

func module(plugin bool) v1beta1.Module {
	m := v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nic", Finalizers: []string{v1beta1.ModuleFinalizer}}}
	if plugin {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{}
	}
	return m
}

// hook of a webhook without a server.
func hook(group, resource string, change func(*Hook)) Hook {
	h := Hook{Configuration: "ValidatingWebhookConfiguration x", Name: "x.example", Service: "gone/x", Fails: true,
		Rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: []string{group}, Resources: []string{resource}}}}}
	if change != nil {
		change(&h)
	}
	return h
}
