// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/sources"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/testkit/env"
)

// forged is what a thief of the operator's token changes of what the operator makes.
type forged[T any] struct {
	given func(T)
	// then is a part of the refusal; empty: accepted.
	then string
	// createOnly: as a merge patch, it would only add.
	createOnly bool
}

func (f *forged[T]) parts() []string {
	if f.then == "" {
		return nil
	}
	return []string{f.then}
}

// withPlugin is a Module in a namespace, as the policies know it.
func withPlugin(t *testing.T, e *env.Env, change ...func(*v1beta1.Module)) *v1beta1.Module {
	t.Helper()
	m := valid(change...)
	m.Namespace = e.ModuleNamespace(t)
	if m.Spec.DRA == nil {
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{
			Container: v1beta1.WorkloadContainer{Image: "example.com/plugin:1", Args: []string{"-v"}},
			Volumes: []corev1.Volume{
				{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
				{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/x"}}},
			},
		}
	}
	if err := e.Admin(t).Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func daemonSetOf(t *testing.T, m *v1beta1.Module) *appsv1.DaemonSet {
	t.Helper()
	ds, err := plugin.DaemonSet(m, env.AgentImage)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// TestOperatorMakesDaemonSetsOfModulesOnly: each forgery is tried as a new DaemonSet, and as an
// update of a right one.
func TestOperatorMakesDaemonSetsOfModulesOnly(t *testing.T) {
	e := env.Get(t)
	operator := e.Client(t, e.Config(t, env.Operator))
	m := withPlugin(t, e)
	right := daemonSetOf(t, m)
	check(t, operator.Create(t.Context(), right))
	for name, tc := range daemonSetForgeries() {
		t.Run(name, func(t *testing.T) {
			fresh := daemonSetOf(t, m)
			fresh.Name = "new-" + fresh.Name
			tc.given(fresh)
			check(t, operator.Create(t.Context(), fresh, client.DryRunAll), tc.parts()...)
			if tc.then == "" || tc.createOnly {
				return
			}
			old := daemonSetOf(t, m)
			tc.given(old)
			labels := map[string]any{v1beta1.ModuleNameLabel: nil} // a merge patch takes off what is null
			for label, value := range old.Labels {
				labels[label] = value
			}
			text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": old.Spec})
			if err != nil {
				t.Fatal(err)
			}
			patch := client.RawPatch(types.MergePatchType, text)
			check(t, operator.Patch(t.Context(), right.DeepCopy(), patch, client.DryRunAll), "denied request")
		})
	}
	elsewhere := daemonSetOf(t, m)
	elsewhere.Namespace = e.Namespace(t)
	elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{v1beta1.ReadyLabel(elsewhere.Namespace, m.Name): ""}
	check(t, operator.Create(t.Context(), elsewhere), "drover-namespaces-of-modules")
}

func daemonSetForgeries() map[string]forged[*appsv1.DaemonSet] {
	pod := func(change func(*corev1.PodSpec)) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { change(&ds.Spec.Template.Spec) }
	}
	volume := func(source corev1.VolumeSource) func(*appsv1.DaemonSet) {
		return pod(func(s *corev1.PodSpec) { s.Volumes = append(s.Volumes, corev1.Volume{Name: "x", VolumeSource: source}) })
	}
	return map[string]forged[*appsv1.DaemonSet]{
		"none":             {given: func(*appsv1.DaemonSet) {}},
		"a label of a hub": {given: func(ds *appsv1.DaemonSet) { ds.Labels[v1alpha1.HubLabel] = "" }, then: "metadata.labels"},
		"no Module":        {given: func(ds *appsv1.DaemonSet) { delete(ds.Labels, v1beta1.ModuleNameLabel) }, then: "metadata.labels"},
		"another role": {given: func(ds *appsv1.DaemonSet) { ds.Labels[v1beta1.RoleLabel] = v1beta1.RoleDRA },
			then: "denied request"},
		"another image": {given: pod(func(s *corev1.PodSpec) { s.Containers[0].Image = "evil:1" }), then: "spec.devicePlugin.container"},
		"another command": {given: pod(func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"sh"} }),
			then: "spec.devicePlugin.container"},
		"other arguments": {given: pod(func(s *corev1.PodSpec) { s.Containers[0].Args = nil }), then: "spec.devicePlugin.container"},
		"a second container": {given: pod(func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "x", Image: "example.com/plugin:1"})
		}), then: "denied request"},
		"an init container": {given: pod(func(s *corev1.PodSpec) {
			s.InitContainers = append(s.InitContainers, corev1.Container{Name: "device-plugin-init", Image: "evil:1"})
		}), then: "spec.devicePlugin.initContainer"},
		"privileged before the kernel module": {given: pod(func(s *corev1.PodSpec) {
			s.InitContainers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}), then: "wait-for-kernel-module"},
		"another ServiceAccount": {given: pod(func(s *corev1.PodSpec) { s.ServiceAccountName = "admin" }), then: "serviceAccountName"},
		"the host's root": {given: volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
			then: "spec.template.spec.volumes"},
		"another Secret": {given: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}),
			then: "spec.template.spec.volumes"},
		"host PIDs":    {given: pod(func(s *corev1.PodSpec) { s.HostPID = true }), then: "namespaces with the host"},
		"host network": {given: pod(func(s *corev1.PodSpec) { s.HostNetwork = true }), then: "denied request"},
		"another Module's nodes": {given: pod(func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{v1beta1.ReadyLabel("a", "b"): ""}
		}), then: "nodeSelector", createOnly: true},
	}
}

func TestOperatorMakesJobsOfImagesOnly(t *testing.T) {
	e := env.Get(t)
	operator := e.Client(t, e.Config(t, env.Operator))
	namespace := e.ModuleNamespace(t)
	image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nic-1", UID: "u"}}
	image.Spec = v1alpha1.ModuleImageSpec{
		Module: "nic", Image: "r/m:1", Architecture: "amd64", Hash: "h",
		Build: &v1alpha1.ImageBuild{DockerfileConfigMap: "dockerfile", Secrets: []string{"s"}, Builder: "r/buildah:1"},
		Sign:  &v1alpha1.ImageSign{KeySecret: "key", CertSecret: "cert", Files: []string{"/opt/a.ko"}},
	}
	pod := func(change func(*corev1.PodSpec)) func(*batchv1.Job) {
		return func(j *batchv1.Job) { change(&j.Spec.Template.Spec) }
	}
	cases := map[string]forged[*batchv1.Job]{
		"none":             {given: func(*batchv1.Job) {}},
		"of a hub":         {given: func(j *batchv1.Job) { j.Labels[v1alpha1.HubLabel] = "" }, then: "metadata.labels"},
		"of no image":      {given: func(j *batchv1.Job) { j.OwnerReferences = nil }, then: "metadata.ownerReferences"},
		"of another image": {given: func(j *batchv1.Job) { j.Labels[v1alpha1.ImageLabel] = "x" }, then: "metadata.ownerReferences"},
		"elsewhere":        {given: func(j *batchv1.Job) { j.Namespace = e.Namespace(t) }, then: "drover-namespaces-of-modules"},
		"a token":          {given: pod(func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = nil }), then: "automountServiceAccountToken"},
		"host network":     {given: pod(func(s *corev1.PodSpec) { s.HostNetwork = true }), then: "namespaces with the host"},
		"a host path": {given: pod(func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "x",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/lib/modules"}}})
		}), then: "spec.template.spec.volumes"},
		"privileged": {given: pod(func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}), then: "not privileged"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := pipeline.Job(image, 1, "New", &pipeline.Options{SignerImage: "r/signer:1", BuildahImage: "r/buildah:1", HostModules: true,
				Deadline: time.Minute})
			tc.given(job)
			check(t, operator.Create(t.Context(), job, client.DryRunAll), tc.parts()...)
		})
	}
}

// TestOperatorKeepsToItsOwnObjects: those of others are neither changed nor deleted.
func TestOperatorKeepsToItsOwnObjects(t *testing.T) {
	e := env.Get(t)
	admin, operator := e.Admin(t), e.Client(t, e.Config(t, env.Operator))
	m := withPlugin(t, e)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "theirs"}}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: account.ObjectMeta, Spec: daemonSetOf(t, m).Spec}
	pod := &corev1.Pod{ObjectMeta: account.ObjectMeta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	for _, object := range []client.Object{account, daemonSet, pod} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		check(t, operator.Patch(t.Context(), object, patch), "denied request")
		check(t, operator.Delete(t.Context(), object), "deletes what has the label")
	}
	spec := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"selector":{"a":"b"}}}`))
	check(t, operator.Patch(t.Context(), m.DeepCopy(), spec), "only puts its finalizer on")
	check(t, operator.Patch(t.Context(), m.DeepCopy(), patch), "only puts its finalizer on")
	for _, finalizers := range []string{`["` + v1beta1.ModuleFinalizer + `"]`, `null`} {
		check(t, operator.Patch(t.Context(), m.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))))
	}
}

// TestOperatorLeavesNodesToOthers: one patch after another of one node, each judged alone.
func TestOperatorLeavesNodesToOthers(t *testing.T) {
	e := env.Get(t)
	operator := e.Client(t, e.Config(t, env.Operator))
	cases := map[string]struct{ patch, then string }{
		"ready":         {patch: `{"metadata":{"labels":{"kmm.node.kubernetes.io/a.b.ready":""}}}`},
		"a version":     {patch: `{"metadata":{"labels":{"kmm.node.kubernetes.io/a.b.version.ready":"1"}}}`},
		"an answer":     {patch: `{"metadata":{"labels":{"beta.kmm.node.kubernetes.io/version-worker-pod.a.b":"1"}}}`},
		"ready no more": {patch: `{"metadata":{"labels":{"kmm.node.kubernetes.io/old.b.ready":null}}}`},
		"another's version": {patch: `{"metadata":{"labels":{"kmm.node.kubernetes.io/version-module.a.b.ready":"1"}}}`,
			then: "metadata.labels"},
		"a role":                    {patch: `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, then: "metadata.labels"},
		"another label":             {patch: `{"metadata":{"labels":{"pool":null}}}`, then: `"pool"`},
		"an annotation":             {patch: `{"metadata":{"annotations":{"drover.dev/paused":""}}}`, then: "metadata.annotations"},
		"a cordon":                  {patch: `{"metadata":{"annotations":{"drover.dev/cordoned-for":"a/b"}},"spec":{"unschedulable":true}}`},
		"a cordon without its mark": {patch: `{"spec":{"unschedulable":true}}`, then: "spec.unschedulable"},
		"no startup taint":          {patch: `{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]}}`},
		"no taint of the cluster":   {patch: `{"spec":{"taints":[{"key":"start","effect":"NoSchedule"}]}}`, then: "spec.taints"},
		"another taint": {
			patch: `{"spec":{"taints":[{"key":"start","effect":"NoExecute"},{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]}}`,
			then:  "adds and changes none"},
		"a provider's ID": {patch: `{"spec":{"providerID":"x"}}`, then: "spec: Drover's operator"},
		"a finalizer":     {patch: `{"metadata":{"finalizers":["a.b/c"]}}`, then: "neither finalizers nor owners"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-",
				Labels: map[string]string{"pool": "a", "kmm.node.kubernetes.io/old.b.ready": ""}}}
			node.Spec.Taints = []corev1.Taint{{Key: "start", Effect: corev1.TaintEffectNoSchedule},
				{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
			if err := e.Admin(t).Create(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			var then []string
			if tc.then != "" {
				then = []string{tc.then}
			}
			check(t, operator.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(tc.patch))), then...)
		})
	}
}

// TestConfigMapsAreReadWhereBuildsAreOn: without config/build, the operator may read those alone
// that have the environment of Jobs. That config/build grants it the rest is shown where images are
// made.
func TestConfigMapsAreReadWhereBuildsAreOn(t *testing.T) {
	e := env.Get(t)
	operator, namespace := e.Client(t, e.Config(t, env.Operator)), e.Namespace(t)
	for _, name := range []string{"settings", pipeline.EnvironmentConfigMap} {
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := e.Admin(t).Create(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) error {
		return operator.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ConfigMap{})
	}
	check(t, read("settings"), "forbidden")
	check(t, sources.Check(t.Context(), operator), "--signer-image needs the rights of the component config/build", "forbidden")
	check(t, read(pipeline.EnvironmentConfigMap))
	check(t, operator.List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{metav1.ObjectNameField: pipeline.EnvironmentConfigMap}))
}

// TestOperatorWritesOneConfigMap: on a spoke, beside the one that says which image carriers run.
func TestOperatorWritesOneConfigMap(t *testing.T) {
	e := env.Get(t)
	e.Install(t, "spoke")
	operator := e.Client(t, e.Config(t, env.Operator))
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: name}}
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"agent":"evil:1"}}`))
	// The role is not in force at once.
	eventually(t, "the operator may write its ConfigMap", func(ctx context.Context) (bool, error) {
		return operator.Create(ctx, named(direct.Platforms), client.DryRunAll) == nil, nil
	})
	check(t, operator.Create(t.Context(), named("other"), client.DryRunAll), "drover-platforms only")
	check(t, operator.Patch(t.Context(), named("drover-images"), patch, client.DryRunAll), "drover-platforms only")
}
