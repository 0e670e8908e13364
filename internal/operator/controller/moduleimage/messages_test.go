// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/pipeline/result"
)

// TestMessages holds the condition Available of a ModuleImage: status, reason and whole message.
// What a Job itself reports (here: "…") is in TestMessages of internal/build/pipeline.
func TestMessages(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	run := func(n int, change func(*pipeline.Run)) pipeline.Run {
		r := pipeline.Run{Number: n, Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: pipeline.JobName(named("i"), n)}}}
		change(&r)
		return r
	}
	good := func(r *pipeline.Run) {
		r.Succeeded, r.Recorded, r.Finished, r.Outcome = true, true, ago(2*time.Minute), pipeline.Outcome{Digest: "sha256:a"}
	}
	bad := func(passing bool) func(*pipeline.Run) {
		return func(r *pipeline.Run) {
			r.Failed, r.Recorded, r.Finished = true, true, ago(time.Second)
			r.Outcome = pipeline.Outcome{Reason: v1beta1.ReasonBuildFailed, Message: "…", Passing: passing}
		}
	}
	lost := func(r *pipeline.Run) {
		good(r)
		r.Job.Annotations = map[string]string{pipeline.CauseAnnotation: causeLost}
	}
	active := func(*pipeline.Run) {}
	prebuilt := func(s *v1alpha1.ModuleImageSpec) { s.Examine = &v1alpha1.ImageExamine{} }
	trial := func(s *v1alpha1.ModuleImageSpec) {
		s.Examine, s.Build = &v1alpha1.ImageExamine{}, &v1alpha1.ImageBuild{}
	}
	for name, tc := range map[string]struct {
		image        func(*v1alpha1.ModuleImageSpec)
		runs         []pipeline.Run
		lost         time.Time // a node did not find the image
		refused      bool      // the API server refuses the Job
		reason, says string
	}{
		"nobody wants it": {
			image:  func(s *v1alpha1.ModuleImageSpec) { s.WantedBy = nil },
			reason: v1beta1.ReasonBuilding, says: "image r/m:1 for kernel 6.1.0 is about to be made",
		},
		"its first Job is made": {reason: v1beta1.ReasonBuilding, says: "Job i-1 makes image r/m:1 for kernel 6.1.0"},
		"a prebuilt image to examine": {
			image:  prebuilt,
			reason: v1beta1.ReasonBuilding, says: "Job i-1 examines image r/m:1 for kernel 6.1.0",
		},
		"its Job is active": {
			runs:   []pipeline.Run{run(1, active)},
			reason: v1beta1.ReasonBuilding, says: "Job i-1 makes image r/m:1 for kernel 6.1.0",
		},
		"its Job waits": {
			runs: []pipeline.Run{run(1, func(r *pipeline.Run) {
				r.Outcome = pipeline.Outcome{Reason: v1beta1.ReasonPullUnauthorized, Message: "…"}
			})},
			reason: v1beta1.ReasonPullUnauthorized, says: "Job i-1: …",
		},
		"its Job failed by its inputs": {
			runs:   []pipeline.Run{run(1, bad(false)), run(2, bad(false))},
			reason: v1beta1.ReasonBuildFailed, says: "image r/m:1 for kernel 6.1.0, try 2 of 5: …",
		},
		"its Job failed by an outage": {
			runs:   []pipeline.Run{run(1, bad(true))},
			reason: v1beta1.ReasonBuildFailed, says: "image r/m:1 for kernel 6.1.0, retried until it succeeds: …",
		},
		"its Job left no result": {
			runs:   []pipeline.Run{run(1, func(r *pipeline.Run) { good(r); r.Outcome.Digest = "" })},
			reason: v1beta1.ReasonCheckFailed,
			says: "image r/m:1 for kernel 6.1.0, retried until it succeeds: " +
				"Job i-1 succeeded, but its pod was deleted before the operator read the result",
		},
		"the API server refuses its Job": {
			refused: true,
			reason:  v1beta1.ReasonBuildFailed, says: "the cluster refuses the Job for image r/m:1: exceeded quota",
		},
		"the registry has it": {
			runs:   []pipeline.Run{run(1, good)},
			reason: v1beta1.ReasonImagesAvailable, says: "The registry has r/m:1",
		},
		"it fits the kernel": {
			image: trial, runs: []pipeline.Run{run(1, good)},
			reason: v1beta1.ReasonImagesAvailable, says: "Nothing found speaks against loading r/m:1 on kernel 6.1.0",
		},
		"the registry lost it": {
			runs: []pipeline.Run{run(1, good)}, lost: ago(time.Minute),
			reason: v1beta1.ReasonImageNotFound, says: "the registry has lost r/m:1; Job i-2 makes it again",
		},
		"the registry loses it all the time": {
			runs: []pipeline.Run{run(1, lost), run(2, lost), run(3, lost)}, lost: ago(time.Minute),
			reason: v1beta1.ReasonImageNotFound,
			says:   "the registry has lost r/m:1, although it was made 3 times within a day: check what deletes it there",
		},
		"the registry has it, a node did not find it": {
			runs:   []pipeline.Run{run(1, good), run(2, func(r *pipeline.Run) { lost(r); r.Outcome.State = result.StateCurrent })},
			lost:   ago(time.Minute),
			reason: v1beta1.ReasonImagesAvailable, says: "The registry has r/m:1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			image := named("i")
			image.Spec = v1alpha1.ModuleImageSpec{Image: "r/m:1", KernelVersion: "6.1.0", WantedBy: []string{"Module/m"}}
			if tc.image != nil {
				tc.image(&image.Spec)
			}
			d := decide(image, tc.runs, tc.lost, now)
			if tc.refused {
				d.refuse(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Message: "exceeded quota"}})
			}
			c := d.status.Conditions[0]
			if c.Type != v1alpha1.ConditionAvailable || (c.Status == metav1.ConditionTrue) != (tc.reason == v1beta1.ReasonImagesAvailable) {
				t.Errorf("the condition is %s=%s", c.Type, c.Status)
			}
			if c.Reason != tc.reason || c.Message != tc.says {
				t.Errorf("it says %s: %s\nnot     %s: %s", c.Reason, c.Message, tc.reason, tc.says)
			}
			for _, other := range d.status.Conditions[1:] {
				if other.Reason != c.Reason || other.Message != c.Message {
					t.Errorf("%s says %s: %s", other.Type, other.Reason, other.Message)
				}
			}
		})
	}
}

func named(name string) *v1alpha1.ModuleImage {
	return &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}
