// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestOneNameHasOneImage: of two images that would overwrite each other in turn, one is made; the
// other says why it is not, and is made as soon as the first is not wanted any more.
func TestOneNameHasOneImage(t *testing.T) {
	for name, second := range map[string]corev1.NodeSystemInfo{
		"two processors":              {KernelVersion: "6.1.0-56-amd64", Architecture: "arm64"},
		"kernels that are one in tag": {KernelVersion: "6.1.0-56-amd64+", Architecture: "amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-2", Labels: map[string]string{"test": w.namespace}}}
			w.must(w.admin.Create(t.Context(), node))
			t.Cleanup(func() { _ = w.admin.Delete(context.Background(), node) })
			node.Status.NodeInfo = second
			w.must(w.admin.Status().Update(t.Context(), node))
			mark := w.env.Mark(t)
			w.pass()
			w.pass() // the first image may have begun before the second was there
			w.quiet()
			first, waiting := w.split()
			c := meta.FindStatusCondition(waiting.Status.Conditions, v1alpha1.ConditionAvailable)
			if c == nil || c.Reason != v1beta1.ReasonImageConflict || !strings.Contains(c.Message, first.Name) ||
				!meta.IsStatusConditionTrue(waiting.Status.Conditions, v1alpha1.ConditionStalled) {
				t.Errorf("the one that waits says %+v", waiting.Status.Conditions)
			}
			w.succeed()
			w.pass()
			w.clock.SetTime(w.clock.Now().Add(24 * time.Hour))
			w.pass()
			for _, job := range w.atWork() {
				if job.Labels[v1alpha1.ImageLabel] != first.Name {
					t.Errorf("Job %s overwrites the first image", job.Name)
				}
			}
			// The nodes of the first one go, so that only the other is wanted.
			gone := w.namespace
			if first.Spec.Architecture == second.Architecture && first.Spec.KernelVersion == second.KernelVersion {
				gone = node.Name
			}
			w.must(w.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gone}}))
			w.pass()
			w.pass()
			if jobs := w.atWork(); len(jobs) != 1 || jobs[0].Labels[v1alpha1.ImageLabel] != waiting.Name {
				t.Errorf("at work are %v", jobs)
			}
			if n := w.env.Writes(w, mark)[env.Write{Agent: "drover-operator", Verb: "create", Resource: "jobs"}]; n > 4 {
				t.Errorf("%d Jobs were made", n)
			}
		})
	}
}

// split are the image with a Job at work, and the other.
func (w *world) split() (first, waiting *v1alpha1.ModuleImage) {
	w.Helper()
	jobs, images := w.atWork(), w.images()
	if len(jobs) != 1 || len(images) != 2 {
		w.Fatalf("%d Jobs are at work for %d images", len(jobs), len(images))
	}
	for i := range images {
		if images[i].Name == jobs[0].Labels[v1alpha1.ImageLabel] {
			first = &images[i]
		} else {
			waiting = &images[i]
		}
	}
	return first, waiting
}

func (w *world) atWork() (active []batchv1.Job) {
	w.Helper()
	for _, job := range w.jobs() {
		if len(job.Status.Conditions) == 0 && !ptr.Deref(job.Spec.Suspend, false) {
			active = append(active, job)
		}
	}
	return active
}

// TestWhatAnotherOperatorMakesIsLeftToIt: a hub in the same cluster.
func TestWhatAnotherOperatorMakesIsLeftToIt(t *testing.T) {
	w := newWorld(t)
	w.mine = func(*v1alpha1.ModuleImage) bool { return false }
	w.pass()
	if image := w.wanted(); len(w.jobs()) > 0 || len(image.Status.Conditions) > 0 {
		t.Errorf("%d Jobs, status %+v", len(w.jobs()), image.Status)
	}
	w.mine = nil
	w.pass()
	if len(w.jobs()) == 0 {
		t.Error("what is left to nobody else has no Job")
	}
}
