// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// started runs a pod of a DaemonSet, or of nobody, whose waiting container found the kernel module
// at a time.
func started(t *testing.T, admin client.Client, daemonSet *appsv1.DaemonSet, owned bool, node, name string, found time.Time) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonSet.Namespace, Name: name, Labels: maps.Clone(daemonSet.Spec.Template.Labels)},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(0)),
			InitContainers: []corev1.Container{{Name: "wait-for-kernel-module", Image: agentImage}},
			Containers:     []corev1.Container{{Name: "main", Image: "example.com/plugin:v1"}},
		},
	}
	if owned {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(daemonSet, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	}
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "wait-for-kernel-module", Image: agentImage,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(found)}},
	}}
	if err := admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// reports is a node whose agent says when it began to load the kernel module; zero: it has found
// it.
type reports struct {
	agent  client.Client
	config *kmmv1beta1.NodeModulesConfig
	module client.ObjectKey
}

func (r *reports) loaded(t *testing.T, began time.Time) {
	t.Helper()
	observed := &kmmv1beta1.ObservedModule{BuildID: "b1", Adopted: began.IsZero()}
	if !began.IsZero() {
		observed.LoadBegan = ptr.To(metav1.NewTime(began))
	}
	before := r.config.DeepCopy()
	r.config.Status.Modules = []kmmv1beta1.NodeModuleStatus{{
		ModuleItem: kmmv1beta1.ModuleItem{Namespace: r.module.Namespace, Name: r.module.Name}, BootID: "boot-1",
		LastTransitionTime: metav1.NewTime(time.Unix(2_000_000_000, 0)), Observed: observed,
		Config: &kmmv1beta1.ModuleConfig{KernelVersion: "6", ContainerImage: "example.com/nic:6"},
	}}
	if err := r.agent.Status().Patch(t.Context(), r.config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// ends counts the pods that the operator ended.
func ends(t *testing.T, e *env.Env, since env.Mark) int {
	return e.Writes(t, since)[env.Write{Agent: "drover-operator", Verb: "delete", Resource: "pods"}]
}

// TestPluginOfAnOlderLoadIsRestartedOnce, whatever else happens afterwards; also when the node's
// clock is wrong.
func TestPluginOfAnOlderLoadIsRestartedOnce(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
	exists(t, admin, daemonSet, true)
	node := func(name string) *reports {
		meta := metav1.ObjectMeta{Name: m.Namespace + "-" + name}
		config := &kmmv1beta1.NodeModulesConfig{ObjectMeta: meta}
		for _, object := range []client.Object{&corev1.Node{ObjectMeta: meta}, config} {
			if err := admin.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Delete(context.Background(), object) })
		}
		return &reports{agent: e.Client(t, e.AgentConfig(t, meta.Name)), config: config, module: client.ObjectKeyFromObject(m)}
	}
	a, b := node("a"), node("b")
	at := time.Unix(1_800_000_000, 0)
	began := e.Mark(t)

	// Nothing to do: the load came first, or in the same second, or there was none, or the pod is
	// somebody else's.
	a.loaded(t, at)
	old := started(t, admin, daemonSet, true, a.config.Name, "a-1", at)
	b.loaded(t, time.Time{})
	other := started(t, admin, daemonSet, true, b.config.Name, "b-1", at.Add(-time.Hour))
	foreign := started(t, admin, daemonSet, false, a.config.Name, "foreign", at.Add(-time.Hour))

	// The kernel module is loaded anew on one node.
	a.loaded(t, at.Add(time.Minute))
	exists(t, admin, old, false)
	exists(t, admin, other, true)
	exists(t, admin, foreign, true)

	// The DaemonSet's next pod comes on a node whose clock was set back meanwhile; it is left alone
	// until the next load.
	next := started(t, admin, daemonSet, true, a.config.Name, "a-2", at.Add(-time.Hour))
	// The pod on the other node shows when the one before was looked at: it is queued later.
	b.loaded(t, at.Add(time.Minute))
	exists(t, admin, other, false)
	exists(t, admin, next, true)
	a.loaded(t, at.Add(2*time.Minute))
	exists(t, admin, next, false)
	if n := ends(t, e, began); n != 3 {
		t.Errorf("%d pods were ended, want 3", n)
	}
	exists(t, admin, foreign, true)
}
