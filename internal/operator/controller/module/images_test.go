// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestImagesThatAreMadeAreWaitedFor: nothing is delivered until the image is there. What keeps it,
// ModuleImages show.
func TestImagesThatAreMadeAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.control = module.New(w.operator, w.operator, module.Options{
		AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, Clock: w.clock, Recorder: kube.NewRecorder(w.events), Gate: &w.gate,
		Images: true,
	})
	m := w.module("m")
	w.node("a")
	base := m.DeepCopy()
	m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}}
	w.must(w.admin.Patch(t.Context(), m, client.MergeFrom(base)))

	carriers := func() int {
		t.Helper()
		var pods corev1.PodList
		w.must(w.admin.List(t.Context(), &pods, client.InNamespace(w.namespace), client.HasLabels{v1beta1.CarrierLabel}))
		return len(pods.Items)
	}
	waits := func() {
		t.Helper()
		w.pass(m)
		if told := w.problems(m); len(told) != 0 || carriers() != 0 {
			t.Errorf("%d carriers, and %+v", carriers(), told)
		}
		w.quiet(m)
	}
	waits()

	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	w.must(err)
	resolved, _, err := mapper.For(kernelVersion, "amd64")
	w.must(err)
	spec, err := pipeline.Declare(m, &resolved, "")
	w.must(err)
	w.must(pipeline.Complete(m.Namespace, spec, &corev1.ConfigMap{Data: map[string]string{"dockerfile": "FROM a"}}, "b@1"))
	spec.WantedBy = []string{pipeline.WantedByModule(m.Name)}
	image := &v1alpha1.ModuleImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pipeline.Name(spec),
			Labels: map[string]string{v1beta1.ModuleNameLabel: m.Name}}, Spec: *spec,
	}
	w.must(w.admin.Create(t.Context(), image))
	stands := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		meta.SetStatusCondition(&image.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: status, Reason: reason, Message: message})
		w.must(w.admin.Status().Update(t.Context(), image))
	}
	stands(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "m.c:3:1: error: expected ';'")
	waits()

	image.Status.Image = spec.Image + "@sha256:aa"
	stands(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "there")
	w.pass(m)
	delivers := func(hash, reference string) {
		t.Helper()
		id, err := delivery.ID(m, &resolved.Config, hash)
		w.must(err)
		var pods corev1.PodList
		w.must(w.admin.List(t.Context(), &pods, client.InNamespace(w.namespace), client.HasLabels{v1beta1.CarrierLabel}))
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Annotations[v1beta1.DeliveryAnnotation] == id &&
				slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
					return v.Image != nil && v.Image.Reference == reference
				}) || len(p.Spec.InitContainers) > 0 && p.Spec.InitContainers[0].Image == reference {
				return
			}
		}
		t.Errorf("none of %d carriers brings %s as %s", len(pods.Items), reference, id)
	}
	delivers(spec.Hash, spec.Image+"@sha256:aa")
	w.quiet(m)

	// Another Dockerfile under the same tag is other content, which nodes get again.
	other := spec.DeepCopy()
	w.must(pipeline.Complete(m.Namespace, other, &corev1.ConfigMap{Data: map[string]string{"dockerfile": "FROM b"}}, "b@1"))
	image.Spec.WantedBy = nil
	w.must(w.admin.Update(t.Context(), image))
	image = &v1alpha1.ModuleImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pipeline.Name(other),
			Labels: map[string]string{v1beta1.ModuleNameLabel: m.Name}}, Spec: *other,
	}
	w.must(w.admin.Create(t.Context(), image))
	image.Status.Image = other.Image + "@sha256:bb"
	stands(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "there")
	w.pass(m)
	delivers(other.Hash, other.Image+"@sha256:bb")
}
