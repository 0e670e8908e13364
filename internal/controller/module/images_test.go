// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/controller/module"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestImagesThatAreMadeAreWaitedFor: nothing is delivered until the image is there, and what keeps it is said.
func TestImagesThatAreMadeAreWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.control = module.New(w.operator, w.operator, w.board, module.Options{
		AgentImage: env.AgentImage, DeliveryMode: delivery.ModeAuto, Clock: w.clock, Recorder: kube.NewRecorder(w.events), Gate: &w.gate, Images: true,
	})
	node, m := w.node("a"), w.module("m")
	base := m.DeepCopy()
	m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "d"}}
	w.must(w.admin.Patch(t.Context(), m, client.MergeFrom(base)))

	carriers := func() int {
		t.Helper()
		var pods corev1.PodList
		w.must(w.admin.List(t.Context(), &pods, client.InNamespace(w.namespace), client.HasLabels{v1beta1.CarrierLabel}))
		return len(pods.Items)
	}
	says := func(reason, text string) {
		t.Helper()
		w.pass(m)
		p := w.board.For(client.ObjectKeyFromObject(m))[node.Name]
		if p.Reason != reason || !strings.Contains(p.Message, text) || carriers() != 0 {
			t.Errorf("%d carriers, and %+v, want %s: %s", carriers(), p, reason, text)
		}
		w.quiet(m)
	}
	says(v1beta1.ReasonBuilding, "is to be made")

	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	w.must(err)
	resolved, _, err := mapper.For(kernelVersion)
	w.must(err)
	spec, err := pipeline.Declare(m, &resolved, "")
	w.must(err)
	w.must(pipeline.Complete(m.Namespace, spec, &corev1.ConfigMap{Data: map[string]string{"dockerfile": "FROM a"}}, "b@1"))
	spec.WantedBy = []string{pipeline.WantedByModule(m.Name)}
	image := &v1alpha1.ModuleImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pipeline.Name(spec), Labels: map[string]string{v1beta1.ModuleNameLabel: m.Name}}, Spec: *spec,
	}
	w.must(w.admin.Create(t.Context(), image))
	stands := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		meta.SetStatusCondition(&image.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: status, Reason: reason, Message: message})
		w.must(w.admin.Status().Update(t.Context(), image))
	}
	stands(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "m.c:3:1: error: expected ';'")
	says(v1beta1.ReasonBuildFailed, "m.c:3:1: error: expected ';'")

	image.Status.Image = spec.Image + "@sha256:aa"
	stands(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable, "there")
	w.pass(m)
	if carriers() != 1 {
		t.Errorf("%d carriers bring the image that was made", carriers())
	}
}
