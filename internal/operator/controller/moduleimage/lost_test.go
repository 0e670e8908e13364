// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestABuildOnALostNodeIsMadeElsewhere: the eviction asked for the pod's end, and no kubelet is
// there to end it. A minute after the pod should have ended, its Job makes room for the next, and
// nothing counts as a failure.
func TestABuildOnALostNodeIsMadeElsewhere(t *testing.T) {
	w := newWorld(t)
	w.pass()
	job := w.active()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: job.Name + "-pod", Labels: job.Spec.Template.Labels,
			Finalizers: []string{batchv1.JobTrackingFinalizer}, // the Job's own: it stays until the pod has ended
		},
		Spec: *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	pod.Spec.NodeName = w.namespace
	w.must(w.admin.Create(t.Context(), pod))
	t.Cleanup(func() {
		w.must(w.admin.Patch(context.Background(), pod,
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	})
	w.must(w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(30)))
	w.clock.SetTime(time.Now())

	again := w.pass()
	if got := w.active(); got.UID != job.UID || again <= 0 || again > 2*time.Minute {
		t.Fatalf("while the pod may still end, Job %s is at work, and the next look is in %v", got.Name, again)
	}
	w.clock.SetTime(w.clock.Now().Add(again + time.Second))
	mark := w.env.Mark(t)
	w.pass()

	if got := w.active(); got.UID == job.UID || w.created(mark) != 1 {
		t.Errorf("Job %s is at work, and %d were made", got.Name, w.created(mark))
	}
	if status := w.wanted().Status; status.Failures != 0 {
		t.Errorf("it counts as a failure: %+v", status)
	}
	w.quiet()
}
