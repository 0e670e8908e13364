// SPDX-License-Identifier: Apache-2.0

package lolcow_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// samples builds config/operators/lolcow/samples, as `kustomize build` does.
func (s *scene) samples() (objects []*unstructured.Unstructured) {
	s.Helper()
	dir, err := filepath.Abs("../../../config/operators/lolcow/samples")
	s.must(err)
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	s.must(err)
	for _, r := range all.Resources() {
		content, err := r.Map()
		s.must(err)
		object := &unstructured.Unstructured{Object: content}
		object.SetNamespace(s.namespace)
		objects = append(objects, object)
	}
	return objects
}

// apply applies the samples as a user does. Fields that the definition lacks are errors.
func (s *scene) apply(change func(*unstructured.Unstructured)) {
	s.Helper()
	for _, object := range s.samples() {
		if change != nil {
			change(object)
		}
		config := client.ApplyConfigurationFromUnstructured(object)
		s.must(client.WithFieldValidation(s.admin, metav1.FieldValidationStrict).Apply(s.Context(), config, client.FieldOwner("kubectl")))
	}
}

// TestSampleBecomesADeploymentAndAService: the sample applies, and becomes what belongs to it, with
// the port that it names. When all is there, nothing is written.
func TestSampleBecomesADeploymentAndAService(t *testing.T) {
	s := newScene(t)
	s.start()
	s.apply(nil)
	s.awaitReason("lolcow-sample", "!"+api.ReasonRollingOut)
	s.rollOut("lolcow-sample")
	s.awaitReason("lolcow-sample", kit.ReasonReconciled)

	l, d, service := s.cow("lolcow-sample"), s.deployment("lolcow-sample"), s.service("backend-service")
	for _, child := range []client.Object{d, service} {
		owner := metav1.GetControllerOf(child)
		if owner == nil || owner.UID != l.UID || owner.Kind != "Lolcow" || !ptr.Deref(owner.BlockOwnerDeletion, false) {
			t.Errorf("%T belongs to %+v", child, owner)
		}
	}
	if port := service.Spec.Ports[0].NodePort; port != 30685 || service.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("Service of type %s with nodePort %d, want NodePort 30685", service.Spec.Type, port)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "ghcr.io/vsoch/lolcow-operator" || l.Spec.Image != c.Image {
		t.Errorf("image %q of %q: the default is not in the object", c.Image, l.Spec.Image)
	}
	for key, value := range service.Spec.Selector {
		if d.Spec.Template.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, which the pods do not have", key, value)
		}
	}
	if len(l.Finalizers) > 0 {
		t.Errorf("finalizers %q, although nothing outside has to be cleaned up", l.Finalizers)
	}
	want := api.LolcowStatus{Conditions: l.Status.Conditions, Greeting: "HELLO", ServiceName: "backend-service", NodePort: 30685}
	if diff := cmp.Diff(want, l.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if meta.IsStatusConditionTrue(l.Status.Conditions, kit.ConditionErrored) {
		t.Errorf("Errored: %+v", l.Status.Conditions)
	}
	s.quiet("lolcow-sample")
}

// quiet fails the test if further passes write anything or tell of anything.
func (s *scene) quiet(name string) {
	s.Helper()
	s.barrier(name + "-begin")
	told := s.events(name)
	mark := s.env.Mark(s)
	for i := range 5 { // passes are made for changes that ask for nothing
		service := s.service(s.cow(name).Status.ServiceName)
		before := service.DeepCopy()
		service.Annotations["example.com/touched"] = fmt.Sprint(i)
		s.must(s.admin.Patch(s.Context(), service, client.MergeFrom(before)))
	}
	s.barrier(name + "-end")
	got := slices.DeleteFunc(s.writes(mark, name+"-begin", name+"-end"), func(w string) bool { return strings.Contains(w, " events ") })
	if len(got) > 0 {
		s.Errorf("writes, but for those of the barriers' Lolcows: %q", got)
	}
	if diff := cmp.Diff(told, s.events(name)); diff != "" {
		s.Errorf("events about what has not changed (-before +after):\n%s", diff)
	}
}

// barrier makes another Lolcow and waits for its event: events are written in the order in which
// they happen. Its Service, whose port others may ask for, can come back once: the operator may see
// that the Service is gone before it sees that the Lolcow is.
func (s *scene) barrier(name string) {
	s.Helper()
	s.create(name, api.LolcowSpec{})
	s.awaitReason(name, "!"+api.ReasonRollingOut)
	s.await("the event of "+name, func() bool { return len(s.events(name)) > 0 })
	s.must(s.admin.Delete(s.Context(), s.cow(name)))
	s.must(s.admin.Delete(s.Context(), s.service(name)))
}

// TestGreetingFollows: a changed greeting changes the pods and nothing else; the log tells it once;
// without one, there is no argument at all.
func TestGreetingFollows(t *testing.T) {
	s := newScene(t)
	s.start()
	s.apply(nil)
	s.awaitReason("lolcow-sample", "!"+api.ReasonRollingOut)
	s.rollOut("lolcow-sample")
	s.awaitReason("lolcow-sample", kit.ReasonReconciled)
	service := s.service("backend-service")
	for _, greeting := range []string{`say "moo" <b>$(PORT)</b> 🐮`, ""} {
		s.apply(func(o *unstructured.Unstructured) {
			s.must(unstructured.SetNestedField(o.Object, greeting, "spec", "greeting"))
		})
		s.awaitReason("lolcow-sample", "!"+api.ReasonRollingOut)
		if got := s.cow("lolcow-sample").Status.Greeting; got != "" {
			t.Errorf("status.greeting is %q while pods are replaced", got)
		}
		s.rollOut("lolcow-sample")
		s.awaitReason("lolcow-sample", kit.ReasonReconciled)
		var want []string
		if greeting != "" {
			want = []string{strings.ReplaceAll(greeting, "$", "$$")}
		}
		if diff := cmp.Diff(want, s.deployment("lolcow-sample").Spec.Template.Spec.Containers[0].Args); diff != "" {
			t.Errorf("args (-want +got):\n%s", diff)
		}
		if got := s.cow("lolcow-sample").Status.Greeting; got != greeting {
			t.Errorf("status.greeting is %q, want %q", got, greeting)
		}
	}
	if now := s.service("backend-service"); now.ResourceVersion != service.ResourceVersion {
		t.Error("the Service was written, although only the greeting has changed")
	}
	if n := s.logged(`"greeting"="say \"moo\"`); n != 1 {
		t.Errorf("the log tells the new greeting %d times:\n%s", n, s.log.String())
	}
	s.quiet("lolcow-sample")
}

// TestForeignObjectsStay: no Service's end makes anything else go, and what has a wanted name but
// another owner is left alone.
func TestForeignObjectsStay(t *testing.T) {
	s := newScene(t)
	s.start()
	foreign := func(name string) (*appsv1.Deployment, *corev1.Service) {
		labels := map[string]string{"app": name}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/i:1"}}},
			},
		}}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		s.must(s.admin.Create(t.Context(), d))
		s.must(s.admin.Create(t.Context(), service))
		return d, service
	}
	s.ready("cow", api.LolcowSpec{ServiceName: "milk"})
	bystander, itsService := foreign("bystander")
	s.must(s.admin.Delete(t.Context(), itsService))

	// The Lolcow is named as somebody's Deployment, and its Service as somebody's Service.
	d, _ := foreign("taken")
	s.create("taken", api.LolcowSpec{})
	s.awaitReason("taken", "!"+kit.ReasonNameConflict)
	_, service := foreign("taken-too")
	s.create("fine", api.LolcowSpec{ServiceName: "taken-too"})
	s.awaitReason("fine", "!"+kit.ReasonNameConflict)
	s.must(s.admin.Delete(t.Context(), s.cow("taken")))
	s.must(s.admin.Delete(t.Context(), s.cow("fine")))
	s.ready("another", api.LolcowSpec{}) // by then, those passes are over

	for _, before := range []client.Object{bystander, d} {
		if now := s.deployment(before.GetName()); now == nil || now.UID != before.GetUID() || now.Generation != before.GetGeneration() {
			t.Errorf("Deployment %s was touched", before.GetName())
		}
	}
	if now := s.service("taken-too"); now == nil || now.ResourceVersion != service.ResourceVersion {
		t.Error("Service taken-too was touched")
	}
	if s.deployment("cow") == nil || s.service("milk") == nil {
		t.Error("the children of another Lolcow have gone")
	}
}

// TestDriftIsHealed: whatever others change in what the operator wrote is changed back, also where
// they leave less than there was.
func TestDriftIsHealed(t *testing.T) {
	s := newScene(t)
	s.start()
	s.ready("cow", api.LolcowSpec{Greeting: "moo", Port: 31400})
	want, wantService := s.deployment("cow").Spec, s.service("cow").Spec
	for name, edit := range map[string]func(*appsv1.Deployment, *corev1.Service){
		"image": func(d *appsv1.Deployment, _ *corev1.Service) {
			d.Spec.Template.Spec.Containers[0].Image = "example.com/cat:1"
		},
		"args":     func(d *appsv1.Deployment, _ *corev1.Service) { d.Spec.Template.Spec.Containers[0].Args = nil },
		"replicas": func(d *appsv1.Deployment, _ *corev1.Service) { d.Spec.Replicas = ptr.To[int32](3) },
		"labels":   func(d *appsv1.Deployment, _ *corev1.Service) { delete(d.Labels, "app.kubernetes.io/name") },
		"user": func(d *appsv1.Deployment, _ *corev1.Service) {
			d.Spec.Template.Spec.SecurityContext.RunAsNonRoot = ptr.To(false)
		},
		"nodePort":   func(_ *appsv1.Deployment, s *corev1.Service) { s.Spec.Ports[0].NodePort = 31401 },
		"targetPort": func(_ *appsv1.Deployment, s *corev1.Service) { s.Spec.Ports[0].TargetPort.StrVal = "nothing" },
		"selector":   func(_ *appsv1.Deployment, s *corev1.Service) { s.Spec.Selector["app.kubernetes.io/instance"] = "bull" },
	} {
		d, service := s.deployment("cow"), s.service("cow")
		edit(d, service)
		s.must(s.admin.Update(t.Context(), d))
		s.must(s.admin.Update(t.Context(), service))
		s.await(name+" to be healed", func() bool {
			d, service := s.deployment("cow"), s.service("cow")
			return cmp.Equal(want, d.Spec) && cmp.Equal(wantService, service.Spec) && d.Labels["app.kubernetes.io/name"] == "lolcow"
		})
	}
}

// TestStatusIsNoInput: a status that somebody wipes or forges is put right, and changes nothing
// else.
func TestStatusIsNoInput(t *testing.T) {
	s := newScene(t)
	s.start()
	want := s.ready("cow", api.LolcowSpec{Greeting: "moo"}).Status
	d, service := s.deployment("cow"), s.service("cow")
	for name, status := range map[string]api.LolcowStatus{
		"wiped": {},
		"forged": {Greeting: "baa", NodePort: 30001, ServiceName: "x", Announced: "baa", Conditions: []metav1.Condition{{
			Type: kit.ConditionReady, Status: metav1.ConditionFalse, Reason: "Forged", LastTransitionTime: metav1.Now(),
		}}},
	} {
		l := s.cow("cow")
		l.Status = status
		s.must(s.admin.Status().Update(t.Context(), l))
		s.await(name+" status to be put right", func() bool {
			now := s.cow("cow").Status
			for i := range now.Conditions {
				now.Conditions[i].LastTransitionTime = want.Conditions[i].LastTransitionTime
			}
			return cmp.Equal(want, now)
		})
	}
	if s.deployment("cow").ResourceVersion != d.ResourceVersion || s.service("cow").ResourceVersion != service.ResourceVersion {
		t.Error("a child was written")
	}
}

// TestRolloutFailureIsTold: what the Deployment says of its pods is in the condition, word for
// word, and in one event.
func TestRolloutFailureIsTold(t *testing.T) {
	s := newScene(t)
	s.start()
	s.create("cow", api.LolcowSpec{})
	s.awaitReason("cow", "!"+api.ReasonRollingOut)
	d := s.deployment("cow")
	d.Status.ObservedGeneration = d.Generation
	d.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		Message: `pods "cow-1" is forbidden: exceeded quota: pods`,
	}}
	s.must(s.admin.Status().Update(context.Background(), d))
	s.awaitReason("cow", "!"+api.ReasonRolloutFailed)
	if c := meta.FindStatusCondition(s.cow("cow").Status.Conditions, kit.ConditionErrored); c.Status != metav1.ConditionTrue ||
		!strings.Contains(c.Message, d.Status.Conditions[0].Message) {
		t.Errorf("Errored: %+v", c)
	}
	s.await("its event", func() bool { return slices.Contains(s.events("cow"), "Warning "+api.ReasonRolloutFailed) })
}
