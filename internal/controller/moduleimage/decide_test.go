// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/pipeline"
)

// TestRegistryThatForgets: deliveries that do not find a built image have it made again, three times a day at most, and each time visibly.
func TestRegistryThatForgets(t *testing.T) {
	image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: v1alpha1.ModuleImageSpec{Image: "r/m:1", WantedBy: []string{"Module/m"}}}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	var runs []pipeline.Run
	made := func(cause string) {
		runs = append(runs, pipeline.Run{
			Number: len(runs) + 1, Succeeded: true, Recorded: true, Finished: now, Told: pipeline.Told{Digest: "sha256:a"},
			Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "i-1", Annotations: map[string]string{pipeline.CauseAnnotation: cause}}},
		})
	}
	made(causeNew)
	says := func(d *decision, status metav1.ConditionStatus, text string) {
		t.Helper()
		c := d.status.Conditions[0]
		if c.Status != status || !strings.Contains(c.Message, text) {
			t.Errorf("Available is %s: %s", c.Status, c.Message)
		}
	}
	if d := decide(image, runs, start.Add(-time.Second), now); d.cause != "" {
		t.Errorf("a delivery from before the image was there makes a Job: %s", d.cause)
	}
	for i := range healLimit {
		now = now.Add(time.Minute)
		d := decide(image, runs, now, now)
		if d.cause != causeLost {
			t.Fatalf("time %d: the cause is %q", i+1, d.cause)
		}
		says(d, metav1.ConditionFalse, "makes it again")
		if d.status.Conditions[0].Reason != v1beta1.ReasonImageNotFound {
			t.Errorf("the reason is %s", d.status.Conditions[0].Reason)
		}
		now = now.Add(time.Minute)
		made(causeLost)
		d = decide(image, runs, now.Add(-time.Minute), now)
		says(d, metav1.ConditionTrue, "The registry has")
		if d.cause != "" || len(d.drop) > 1 {
			t.Errorf("after it was made: cause %q, %d Jobs dropped", d.cause, len(d.drop))
		}
	}
	now = now.Add(time.Minute)
	d := decide(image, runs, now, now)
	if d.cause != "" {
		t.Errorf("it is made once more")
	}
	says(d, metav1.ConditionFalse, "3 times")
	if d = decide(image, runs, now, now.Add(checkPeriod)); d.cause != causeLost {
		t.Errorf("a day later the cause is %q", d.cause)
	}
}

// TestToolsSeeWhetherToWait: Reconciling while a Job runs or another try is due, Stalled once nobody tries any more, neither when the image is there.
func TestToolsSeeWhetherToWait(t *testing.T) {
	image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: v1alpha1.ModuleImageSpec{Image: "r/m:1", WantedBy: []string{"Module/m"}}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	says := func(runs []pipeline.Run, want ...string) {
		t.Helper()
		var got []string
		for _, c := range decide(image, runs, time.Time{}, now).status.Conditions {
			got = append(got, c.Type+"="+string(c.Status))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("after %d Jobs: %v, want %v", len(runs), got, want)
		}
	}
	says(nil, "Available=False", "Reconciling=True")
	var runs []pipeline.Run
	for i := range failureLimit {
		runs = append(runs, pipeline.Run{
			Number: i + 1, Failed: true, Recorded: true, Finished: now, Told: pipeline.Told{Reason: v1beta1.ReasonBuildFailed}, Job: &batchv1.Job{},
		})
		if i+1 < failureLimit {
			says(runs, "Available=False", "Reconciling=True")
		}
	}
	says(runs, "Available=False", "Stalled=True")
	runs = append(runs, pipeline.Run{Number: failureLimit + 1, Succeeded: true, Recorded: true, Finished: now, Told: pipeline.Told{Digest: "sha256:a"}, Job: &batchv1.Job{}})
	says(runs, "Available=True")
	image.Spec.WantedBy = nil
	says(runs[:failureLimit], "Available=False")
}
