// SPDX-License-Identifier: Apache-2.0

package ptemplate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operators/ptemplate"
	"github.com/drover-project/drover/kit"
)

// TestSampleBecomesAModuleAndConsumers: these two children and no others, which it owns; then
// nothing is written or logged any more.
func TestSampleBecomesAModuleAndConsumers(t *testing.T) {
	r := newRig(t)
	r.start()
	key := r.create("consumer-pod")
	r.settled(key)

	var modules v1beta1.ModuleList
	var sets appsv1.DaemonSetList
	r.must(r.admin.List(t.Context(), &modules, client.InNamespace(r.namespace)))
	r.must(r.admin.List(t.Context(), &sets, client.InNamespace(r.namespace)))
	if len(modules.Items) != 1 || len(sets.Items) != 1 {
		t.Fatalf("%d Modules and %d DaemonSets, want one of each", len(modules.Items), len(sets.Items))
	}
	p := r.ptemplate(key)
	for _, child := range []client.Object{r.module(key), r.set(key)} {
		owner := metav1.GetControllerOf(child)
		if owner == nil || owner.UID != p.UID || !ptr.Deref(owner.BlockOwnerDeletion, false) {
			t.Errorf("%s belongs to %+v", child.GetName(), owner)
		}
	}
	if got := selectors(r.module(key), r.set(key)); !slices.Equal(got, []string{
		"node-role.kubernetes.io/worker=worker", "node-role.kubernetes.io/worker=worker", "ready=",
	}) {
		t.Errorf("selectors: %q", got)
	}
	if got := devices(r.module(key), r.set(key)); !slices.Equal(got, []string{"2", "2"}) {
		t.Errorf("limit and request: %q", got)
	}

	mark, passes, lines := r.env.Mark(t), r.passesOf(key), len(r.logged())
	r.patch(p, `{"metadata":{"annotations":{"example.com/again":"1"}}}`)
	r.await("another pass", func() bool { return r.passesOf(key) > passes })
	// A pass of the same object ends before the next one begins.
	passes = r.passesOf(key)
	r.patch(p, `{"metadata":{"annotations":{"example.com/again":"2"}}}`)
	r.await("another pass", func() bool { return r.passesOf(key) > passes })
	if writes := r.env.Writes(t, mark); len(writes) > 0 {
		t.Errorf("passes without a change wrote %v", writes)
	}
	if all := r.logged(); len(all) > lines {
		t.Errorf("passes without a change logged %q", all[lines:])
	}
	for _, line := range r.logged() {
		if strings.Contains(line, "kernelMappings") || strings.Contains(line, "max_dev") {
			t.Errorf("an object is dumped into the log: %s", line)
		}
	}
}

// TestStatusSaysWhatRuns: what others report decides, not what was written; none at all is no
// error.
func TestStatusSaysWhatRuns(t *testing.T) {
	r := newRig(t)
	r.start()
	key := r.create("p")
	r.settled(key)
	labels := r.set(key).Spec.Selector.MatchLabels
	for _, name := range []string{"p-b", "p-a"} {
		r.run(name, labels, r.set(key))
	}
	r.run("foreign", labels, nil)
	r.await("the consumers", func() bool { return slices.Equal(r.ptemplate(key).Status.Consumers, []string{"p-a", "p-b"}) })
	if got := consumersMetric(t, key); got != 2 {
		t.Errorf("ptemplate_consumers is %v, want 2", got)
	}
	if c := r.ready(key); c.Status != metav1.ConditionFalse {
		t.Errorf("ready before the Module is: %+v", c)
	}

	m := r.module(key)
	m.Status.ObservedGeneration = m.Generation
	m.Status.ModuleLoader = v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 2, AvailableNumber: 2}
	m.Status.DevicePlugin = m.Status.ModuleLoader
	r.must(r.admin.Status().Update(t.Context(), m))
	r.await("word of the consumers", func() bool { return r.ready(key).Reason == ptemplate.ReasonConsumersNotReady })
	set := r.set(key)
	set.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: set.Generation, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, NumberReady: 2, UpdatedNumberScheduled: 2,
		NumberAvailable: 2,
	}
	r.must(r.admin.Status().Update(t.Context(), set))
	r.await("Ready", func() bool { return r.ready(key).Status == metav1.ConditionTrue })

	for _, name := range []string{"p-b", "p-a"} {
		r.must(r.admin.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}},
			client.GracePeriodSeconds(0)))
	}
	r.await("no consumers", func() bool { return len(r.ptemplate(key).Status.Consumers) == 0 })
	r.must(r.admin.Delete(t.Context(), r.ptemplate(key)))
	r.await("no metric", func() bool { return consumersMetric(t, key) == -1 })
}

// run makes a pod that says it runs.
func (r *rig) run(name string, labels map[string]string, owner *appsv1.DaemonSet) {
	r.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c:1"}}},
	}
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	}
	r.must(r.admin.Create(r.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	r.must(r.admin.Status().Update(r.Context(), pod))
}

// consumersMetric is -1 when there is no series for the object.
func consumersMetric(t *testing.T, key client.ObjectKey) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "ptemplate_consumers" {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if cmp.Equal(labels, map[string]string{"namespace": key.Namespace, "name": key.Name}) {
				return series.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// TestWhatSomebodyChangesIsPutRight without any other trigger; what others add stays.
func TestWhatSomebodyChangesIsPutRight(t *testing.T) {
	r := newRig(t)
	r.start()
	key := r.create("p")
	r.settled(key)
	for name, c := range map[string]struct {
		change func()
		right  func() bool
	}{
		"the Module is deleted": {
			func() { r.must(r.admin.Delete(t.Context(), r.module(key))) },
			func() bool { return true },
		},
		"the DaemonSet is deleted": {
			func() { r.must(r.admin.Delete(t.Context(), r.set(key))) },
			func() bool { return true },
		},
		"the device plugin is taken out": {
			func() { r.patch(r.module(key), `{"spec":{"devicePlugin":null}}`) },
			func() bool { return r.module(key).Spec.DevicePlugin != nil },
		},
		"the selector is another": {
			func() { r.patch(r.module(key), `{"spec":{"selector":{"node-role.kubernetes.io/worker":"x"}}}`) },
			func() bool { return r.module(key).Spec.Selector["node-role.kubernetes.io/worker"] == "worker" },
		},
		"the image is another": {
			func() {
				set := r.set(key)
				set.Spec.Template.Spec.Containers[0].Image = "registry.example.com/other:1"
				r.must(r.admin.Update(t.Context(), set))
			},
			func() bool {
				return image(nil, r.set(key))[0] == "registry.example.com/drover/sample-consumer:1.0"
			},
		},
		"the resources are taken out": {
			func() {
				set := r.set(key)
				set.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
				r.must(r.admin.Update(t.Context(), set))
			},
			func() bool { return slices.Equal(devices(nil, r.set(key)), []string{"2", "2"}) },
		},
		"the consumers run anywhere": {
			func() {
				set := r.set(key)
				set.Spec.Template.Spec.NodeSelector = nil
				r.must(r.admin.Update(t.Context(), set))
			},
			func() bool { return len(r.set(key).Spec.Template.Spec.NodeSelector) == 2 },
		},
	} {
		c.change()
		r.await("what it was, after "+name, func() bool {
			m, set := r.module(key), r.set(key)
			return m != nil && set != nil && m.DeletionTimestamp == nil && set.DeletionTimestamp == nil && c.right()
		})
	}
	r.patch(r.module(key), `{"metadata":{"annotations":{"example.com/theirs":"1"}},"spec":{"deletionTimeout":"1m"}}`)
	r.patch(r.ptemplate(key), `{"spec":{"maxdev":4}}`)
	r.await("the parameter", func() bool { return slices.Contains(parameters(r.module(key), nil), "max_dev=4") })
	if m := r.module(key); m.Annotations["example.com/theirs"] != "1" || m.Spec.DeletionTimeout == nil {
		t.Errorf("what somebody added is gone: %v, %v", m.Annotations, m.Spec.DeletionTimeout)
	}
}

// TestOthersDaemonSetsCauseNoPass: the events of one kind arrive in their order, so that when a
// later one has, an earlier one has, too.
func TestOthersDaemonSetsCauseNoPass(t *testing.T) {
	r := newRig(t)
	r.start()
	first, second := r.create("first"), r.create("second")
	r.settled(first)
	r.settled(second)
	other := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "other"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "first"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "first"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c:1"}}},
			},
		},
	}
	before := r.passesOf(first)
	r.must(r.admin.Create(t.Context(), other))
	r.patch(other, `{"metadata":{"labels":{"changed":"1"}}}`)
	passes := r.passesOf(second)
	r.patch(r.set(second), `{"metadata":{"labels":{"changed":"1"}}}`)
	r.await("a pass for the other Ptemplate", func() bool { return r.passesOf(second) > passes })
	if after := r.passesOf(first); after != before {
		t.Errorf("a DaemonSet of somebody else's caused %d passes", after-before)
	}
	if s := r.set(first).Spec.Selector.MatchLabels; cmp.Equal(s, r.set(second).Spec.Selector.MatchLabels) || len(s) != 3 {
		t.Errorf("the consumers of two Ptemplates are told apart by nothing: %v", s)
	}
}

// TestWhatBelongsToOthersIsLeftAlone: a Module of the wanted name, and then a DaemonSet.
func TestWhatBelongsToOthersIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.start()
	theirs := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "p"},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{"a": "b"}}}
	r.must(r.admin.Create(t.Context(), theirs))
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "q-consumer"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "q"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "q"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c:1"}}},
			},
		},
	}
	r.must(r.admin.Create(t.Context(), set))
	p, q := r.create("p"), r.create("q")
	for key, message := range map[client.ObjectKey]string{p: "Module p", q: "DaemonSet q-consumer"} {
		r.await("NameConflict", func() bool { return r.ready(key).Reason == kit.ReasonNameConflict })
		if got := r.ready(key).Message; !strings.Contains(got, message) {
			t.Errorf("%s: %q names no %s", key.Name, got, message)
		}
	}
	if r.module(p).ResourceVersion != theirs.ResourceVersion || r.set(q).ResourceVersion != set.ResourceVersion {
		t.Error("what belongs to somebody else was written")
	}
}

// TestMissingRightIsNamed: a role that somebody has cut down is told of in the condition, with the
// verb and the resource.
func TestMissingRightIsNamed(t *testing.T) {
	r := newRig(t)
	role := &rbacv1.ClusterRole{}
	r.must(r.admin.Get(t.Context(), client.ObjectKey{Name: "ptemplate-operator-manager-role"}, role))
	less := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}, Rules: role.DeepCopy().Rules}
	for i := range less.Rules {
		if slices.Contains(less.Rules[i].Resources, "daemonsets") {
			less.Rules[i].Verbs = []string{"get", "list", "watch"}
		}
	}
	r.must(r.admin.Create(t.Context(), less))
	r.must(r.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: less.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.namespace}},
	}))
	r.config = r.env.UserConfig(t, r.namespace)
	r.start()
	key := r.create("p")
	r.await("Forbidden", func() bool { return r.ready(key).Reason == kit.ReasonForbidden })
	for _, word := range []string{"patch", "daemonsets"} {
		if got := r.ready(key).Message; !strings.Contains(got, word) {
			t.Errorf("%q does not say %q", got, word)
		}
	}
}

// TestSeveralStandSideBySide in one namespace, and under one name in two.
func TestSeveralStandSideBySide(t *testing.T) {
	r := newRig(t)
	r.start()
	keys := []client.ObjectKey{r.create("p"), r.create("q"), r.createIn(r.elsewhere, "p")}
	selectors := map[string]bool{}
	for _, key := range keys {
		r.settled(key)
		selectors[metav1.FormatLabelSelector(r.set(key).Spec.Selector)] = true
	}
	if len(selectors) != len(keys) {
		t.Errorf("consumers are told apart by %v", selectors)
	}
	r.patch(r.ptemplate(keys[0]), `{"spec":{"maxdev":3}}`)
	r.await("the change", func() bool { return slices.Contains(parameters(r.module(keys[0]), nil), "max_dev=3") })
	for _, key := range keys[1:] {
		if !slices.Contains(parameters(r.module(key), nil), "max_dev=5") {
			t.Errorf("%s has %q", key, parameters(r.module(key), nil))
		}
	}
}
