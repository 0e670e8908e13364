// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// TestImagesThatAreMadeAreReported: what keeps an image from being begun, then the compiler's line,
// then that it is there.
func TestImagesThatAreMadeAreReported(t *testing.T) {
	s := newScene(t, 1)
	base := s.module.DeepCopy()
	s.module.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}}
	if err := s.admin.Patch(t.Context(), s.module, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	startOptions(t, s.Env, node.Options{Makes: true})
	available := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		if c := s.awaitCondition(t, v1beta1.ConditionImagesAvailable, status, reason); c.Message != message {
			t.Errorf("%s", c.Message)
		}
	}
	available(metav1.ConditionFalse, v1beta1.ReasonBuilding,
		"0 of 1 image available; Building for "+kernelVersion+" (): image example.com/nic:"+kernelVersion+" is about to be made")

	s.tell(t, v1beta1.ProblemImages, map[string]reasons.Problem{v1beta1.AllNodes: {Reason: v1beta1.ReasonBuildInputMissing,
		Message: "ConfigMap d is missing"}})
	available(metav1.ConditionFalse, v1beta1.ReasonBuildInputMissing, "0 of 1 image available; BuildInputMissing for "+kernelVersion+
		" (): ConfigMap d is missing")
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonBuildInputMissing)
	s.tell(t, v1beta1.ProblemImages, nil)

	mapper, err := kernel.NewMapper(s.module.Spec.ModuleLoader, s.namespace, "nic")
	if err != nil {
		t.Fatal(err)
	}
	resolved, _, err := mapper.For(kernelVersion, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := pipeline.Declare(s.module, &resolved, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := pipeline.Complete(s.namespace, spec, &corev1.ConfigMap{Data: map[string]string{"dockerfile": "FROM a"}}, "b@1"); err != nil {
		t.Fatal(err)
	}
	spec.WantedBy = []string{pipeline.WantedByModule("nic")}
	image := &v1alpha1.ModuleImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pipeline.Name(spec),
			Labels: map[string]string{v1beta1.ModuleNameLabel: "nic"}}, Spec: *spec,
	}
	if err := s.admin.Create(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	stands := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		meta.SetStatusCondition(&image.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: status, Reason: reason, Message: message})
		if err := s.admin.Status().Update(t.Context(), image); err != nil {
			t.Fatal(err)
		}
	}
	stands(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "m.c:3:1: error: expected ';'\nmake: *** [m.o] Error 1")
	available(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "0 of 1 image available; BuildFailed for "+kernelVersion+
		" (): m.c:3:1: error: expected ';'")
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonBuildFailed)
	s.awaitEvent(t, corev1.EventTypeWarning, v1beta1.ConditionImagesAvailable, v1beta1.ReasonBuildFailed)

	image.Status.Image = spec.Image + "@sha256:aa"
	stands(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "there")
	available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "The registry has 1 image")
	s.awaitEvent(t, corev1.EventTypeNormal, v1beta1.ConditionImagesAvailable, v1beta1.ReasonImagesAvailable)
}

// awaitEvent waits for an event about the Module.
func (s *scene) awaitEvent(t *testing.T, kind, action, reason string) {
	t.Helper()
	eventually(t, "an event "+reason, func(ctx context.Context) (bool, error) {
		var events eventsv1.EventList
		err := s.admin.List(ctx, &events, client.InNamespace(s.namespace))
		return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Type == kind && e.Action == action && e.Reason == reason && e.Regarding.Name == s.module.Name
		}), err
	})
}
