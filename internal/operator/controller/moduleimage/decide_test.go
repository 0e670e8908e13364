// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"fmt"
	"slices"
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
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/pipeline/result"
)

// TestRegistryThatForgets: deliveries that do not find a built image have it made again, three
// times a day at most, and each time visibly.
func TestRegistryThatForgets(t *testing.T) {
	image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: "i"},
		Spec: v1alpha1.ModuleImageSpec{Image: "r/m:1", WantedBy: []string{"Module/m"}}}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	var runs []pipeline.Run
	made := func(cause string) {
		runs = append(runs, pipeline.Run{
			Number: len(runs) + 1, Succeeded: true, Recorded: true, Finished: now, Outcome: pipeline.Outcome{Digest: "sha256:a"},
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

// TestToolsSeeWhetherToWait: Reconciling while a Job runs or another try is due, Stalled once
// nobody tries any more, neither when the image is there.
func TestToolsSeeWhetherToWait(t *testing.T) {
	image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: "i"},
		Spec: v1alpha1.ModuleImageSpec{Image: "r/m:1", WantedBy: []string{"Module/m"}}}
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
			Number: i + 1, Failed: true, Recorded: true, Finished: now, Outcome: pipeline.Outcome{Reason: v1beta1.ReasonBuildFailed},
			Job: &batchv1.Job{},
		})
		if i+1 < failureLimit {
			says(runs, "Available=False", "Reconciling=True")
		}
	}
	says(runs, "Available=False", "Stalled=True")
	runs = append(runs, pipeline.Run{Number: failureLimit + 1, Succeeded: true, Recorded: true, Finished: now,
		Outcome: pipeline.Outcome{Digest: "sha256:a"}, Job: &batchv1.Job{}})
	says(runs, "Available=True")
	image.Spec.WantedBy = nil
	says(runs[:failureLimit], "Available=False")
}

// TestARetryIsKnownByItsValue: the clock of the person who asks may be an hour off. The failures of
// before are forgotten, those of after count.
func TestARetryIsKnownByItsValue(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for name, asked := range map[string]time.Time{"an hour behind": now.Add(-time.Hour), "in time": now, "an hour ahead": now.Add(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			image := wanted()
			fails := func(i int) pipeline.Run {
				return run(i, func(r *pipeline.Run) {
					r.Failed, r.Recorded, r.Finished, r.Outcome.Reason = true, true, now, v1beta1.ReasonBuildFailed
					r.Job = pipeline.Job(image, i, "", &pipeline.Options{})
				})
			}
			var runs []pipeline.Run
			for i := range failureLimit {
				runs = append(runs, fails(i+1))
			}
			if d := decide(image, runs, time.Time{}, now); d.cause != "" {
				t.Fatalf("before anybody asked: a Job because of %q", d.cause)
			}
			image.Spec.Retry = &metav1.Time{Time: asked}
			if d := decide(image, runs, time.Time{}, now); d.cause != causeRetry {
				t.Errorf("asked: the cause is %q, want %q", d.cause, causeRetry)
			}
			runs = append(runs, fails(failureLimit+1))
			if d := decide(image, runs, time.Time{}, now); d.cause != "" || d.again != firstPause {
				t.Errorf("it failed again: the cause is %q, the next look in %v; want a pause of %v", d.cause, d.again, firstPause)
			}
		})
	}
}

// wanted is an image that somebody wants, and run the n-th of its Jobs.
func wanted() *v1alpha1.ModuleImage {
	return &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Name: "i"},
		Spec: v1alpha1.ModuleImageSpec{Image: "r/m:1", WantedBy: []string{"Module/m"}}}
}

func run(n int, change func(*pipeline.Run)) pipeline.Run {
	r := pipeline.Run{Number: n, Job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("i-%d", n),
		Annotations: map[string]string{}}}}
	change(&r)
	return r
}

// TestAJobsEndIsReadWithItsPods: the Job's end can be here before its pod's. Nothing is recorded or
// made because of it until both are.
func TestAJobsEndIsReadWithItsPods(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	early := func() []pipeline.Run {
		return []pipeline.Run{run(1, func(r *pipeline.Run) { r.Succeeded, r.Finished, r.Unseen = true, now, true })}
	}
	d := decide(wanted(), early(), time.Time{}, now.Add(time.Second))
	if d.cause != "" || len(d.record)+len(d.suspend)+len(d.drop) != 0 || d.again != arrival-time.Second {
		t.Errorf("before the pod's end is here: %+v", d)
	}
	if d = decide(wanted(), early(), time.Time{}, now.Add(arrival)); len(d.record) != 1 || d.cause != causeRetry {
		t.Errorf("when it does not come: %+v", d)
	}
}

// TestOutagesAreWaitedFor: what the world does is tried again for as long as it lasts, every
// quarter of an hour; what the image is made from is not.
func TestOutagesAreWaitedFor(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failed := func(n int, passing bool) pipeline.Run {
		return run(n, func(r *pipeline.Run) {
			r.Failed, r.Recorded, r.Finished, r.Outcome = true, true, now,
				pipeline.Outcome{Reason: v1beta1.ReasonPushFailed, Message: "429", Passing: passing}
		})
	}
	good := run(1, func(r *pipeline.Run) {
		r.Succeeded, r.Recorded, r.Finished, r.Outcome.Digest = true, true, now.Add(-time.Hour), "sha256:a"
	})
	for name, tc := range map[string]struct {
		before  []pipeline.Run
		kinds   []bool
		lost    time.Time
		again   time.Duration
		cause   string
		stalled bool
	}{
		"one failure":         {kinds: []bool{true}, again: firstPause},
		"a night of them":     {kinds: slices.Repeat([]bool{true}, 19), again: longPause},
		"of the image's own":  {kinds: slices.Repeat([]bool{false}, failureLimit), stalled: true},
		"an outage among own": {kinds: []bool{false, false, true, false, false}, again: 8 * time.Minute},
		"and one more":        {kinds: []bool{false, false, true, false, false, false}, stalled: true},
		"an outage after own": {kinds: []bool{false, false, false, false, false, true}, again: longPause},
		"the registry lost it": {before: []pipeline.Run{good}, kinds: slices.Repeat([]bool{true}, 2*failureLimit), lost: now,
			again: longPause},
		"and it is time to retry": {before: []pipeline.Run{good}, kinds: slices.Repeat([]bool{true}, 2*failureLimit), lost: now,
			cause: causeRetry},
	} {
		t.Run(name, func(t *testing.T) {
			runs, at := slices.Clone(tc.before), now
			for _, passing := range tc.kinds {
				runs = append(runs, failed(len(runs)+1, passing))
			}
			if tc.cause != "" {
				at = now.Add(longPause)
			}
			d := decide(wanted(), runs, tc.lost, at)
			if d.cause != tc.cause || d.again != tc.again ||
				meta.IsStatusConditionTrue(d.status.Conditions, v1alpha1.ConditionStalled) != tc.stalled {
				t.Errorf("cause %q, again in %v, %+v", d.cause, d.again, d.status.Conditions)
			}
		})
	}
}

// TestResultsThatNobodyReadMakeNoStorm: Jobs whose pods are always gone before they are read back
// off, as failures do.
func TestResultsThatNobodyReadMakeNoStorm(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := 1; n <= failureLimit; n++ {
		var runs []pipeline.Run
		for i := range n {
			runs = append(runs, run(i+1, func(r *pipeline.Run) { r.Succeeded, r.Finished = true, now }))
		}
		d := decide(wanted(), runs, time.Time{}, now)
		if c := d.status.Conditions[0]; d.cause != "" || d.again != min(firstPause<<(n-1), longPause) || c.Reason != v1beta1.ReasonCheckFailed {
			t.Errorf("after %d: cause %q, again in %v, %s: %s", n, d.cause, d.again, c.Reason, c.Message)
		}
	}
}

// TestANodeMayBeToldOtherwise: a node's mirror that lacks what the registry has makes looks ever
// more seldom, and no other node waits for it.
func TestANodeMayBeToldOtherwise(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	runs := []pipeline.Run{run(1, func(r *pipeline.Run) { r.Succeeded, r.Finished, r.Outcome.Digest = true, start, "sha256:a" })}
	looks := 0
	for now.Before(start.Add(20 * time.Hour)) {
		d := decide(wanted(), runs, now, now)
		if c := d.status.Conditions[0]; looks > 0 && c.Status != metav1.ConditionTrue {
			t.Fatalf("after %d looks that found it, Available is %s: %s", looks, c.Status, c.Message)
		}
		if d.cause == "" {
			now = now.Add(time.Minute) // the node goes on asking
			continue
		}
		if d.cause != causeLost {
			t.Fatalf("the cause is %s", d.cause)
		}
		looks++
		now = now.Add(time.Minute)
		runs = append(runs, run(d.next, func(r *pipeline.Run) {
			r.Succeeded, r.Finished, r.Outcome = true, now, pipeline.Outcome{Digest: "sha256:a", State: result.StateCurrent}
			r.Job.Annotations[pipeline.CauseAnnotation] = causeLost
		}))
		now = now.Add(time.Minute)
	}
	if looks < 4 || looks > 8 {
		t.Errorf("%d looks in 20 hours", looks)
	}
	// Lost after all, it is made again at the next look.
	if d := decide(wanted(), runs, now, now.Add(24*time.Hour)); d.cause != causeLost {
		t.Errorf("a day later the cause is %q", d.cause)
	}
}

// TestMendedSettingsCount: failures with other credentials, TLS or nodes than those of now say
// nothing; a Job that waits with the old ones is replaced.
func TestMendedSettingsCount(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var runs []pipeline.Run
	for i := range failureLimit {
		runs = append(runs, run(i+1, func(r *pipeline.Run) {
			r.Failed, r.Finished, r.Recorded, r.Stale, r.Outcome.Reason = true, now, true, true, v1beta1.ReasonCheckFailed
		}))
	}
	if d := decide(wanted(), runs, time.Time{}, now); d.cause != causeRetry || d.next != failureLimit+1 {
		t.Errorf("after failures with other settings: cause %q, Job %d", d.cause, d.next)
	}
	for name, tc := range map[string]struct {
		given    func(*pipeline.Run)
		replaced bool
	}{
		"it waits":           {given: func(r *pipeline.Run) { r.Stale, r.Outcome.Reason = true, v1beta1.ReasonPullUnauthorized }, replaced: true},
		"it was suspended":   {given: func(r *pipeline.Run) { r.Stale, r.Job.Spec.Suspend = true, ptr.To(true) }, replaced: true},
		"it is at work":      {given: func(r *pipeline.Run) { r.Stale = true }},
		"nothing was mended": {given: func(r *pipeline.Run) { r.Outcome.Reason = v1beta1.ReasonPullUnauthorized }},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(wanted(), []pipeline.Run{run(1, tc.given)}, time.Time{}, now)
			if replaced := len(d.drop) == 1 && d.cause == causeNew && d.next == 2; replaced != tc.replaced || !tc.replaced && len(d.drop) > 0 {
				t.Errorf("drops %d, cause %q, Job %d", len(d.drop), d.cause, d.next)
			}
		})
	}
}

// TestALostNodeHoldsNoBuild: a pod that is to be gone and stays has no kubelet any more. Its Job is
// replaced a minute after its grace period; the Job controller would wait for the pod until the
// Job's time is over.
func TestALostNodeHoldsNoBuild(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	removed := func(ago time.Duration) func(*pipeline.Run) {
		return func(r *pipeline.Run) { r.Removed = now.Add(-ago) }
	}
	for name, tc := range map[string]struct {
		given    func(*pipeline.Run)
		replaced bool
		again    time.Duration
	}{
		"nobody removes it":     {given: func(*pipeline.Run) {}},
		"it is being ended":     {given: removed(-30 * time.Second), again: silence + 30*time.Second},
		"it should be over":     {given: removed(silence - time.Second), again: time.Second},
		"its kubelet is silent": {given: removed(silence), replaced: true},
		"suspended":             {given: func(r *pipeline.Run) { removed(time.Hour)(r); r.Job.Spec.Suspend = ptr.To(true) }},
		"the Job has ended well": {given: func(r *pipeline.Run) {
			removed(time.Hour)(r)
			r.Succeeded, r.Finished, r.Outcome.Digest = true, now, "sha256:a"
		}, again: checkPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(wanted(), []pipeline.Run{run(1, tc.given)}, time.Time{}, now)
			if replaced := len(d.drop) == 1 && d.cause == causeNew && d.next == 2; replaced != tc.replaced || !tc.replaced && len(d.drop) > 0 {
				t.Errorf("drops %d, cause %q, Job %d", len(d.drop), d.cause, d.next)
			}
			if d.again != tc.again {
				t.Errorf("looks again in %v instead of %v", d.again, tc.again)
			}
		})
	}
}

// TestFailuresDoNotPileUp: however often somebody asks for another try.
func TestFailuresDoNotPileUp(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var runs []pipeline.Run
	for i := range 30 {
		runs = append(runs, run(i+1, func(r *pipeline.Run) { r.Failed, r.Finished, r.Recorded = true, now, true }))
	}
	if d := decide(wanted(), runs, time.Time{}, now); len(d.drop) != 10 || d.drop[0].Number != 1 {
		t.Errorf("%d of 30 are dropped", len(d.drop))
	}
}

// TestNodesThatConcernAModule: a node's own labels change all the time; only another platform of
// its nodes makes a pass of a Module.
func TestNodesThatConcernAModule(t *testing.T) {
	m := &v1beta1.Module{Spec: v1beta1.ModuleSpec{Selector: map[string]string{"nic": "yes"}}}
	node := func(labels map[string]string, kernel string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: kernel}}}
	}
	nic, ready := map[string]string{"nic": "yes"}, map[string]string{"nic": "yes", "kmm.node.kubernetes.io/ns.m.ready": ""}
	for name, tc := range map[string]struct {
		before, now *corev1.Node
		then        bool
	}{
		"our label":          {before: node(nic, "6.1.0"), now: node(ready, "6.1.0")},
		"a new kernel":       {before: node(nic, "6.1.0"), now: node(nic, "6.2.0"), then: true},
		"selected":           {before: node(nil, "6.1.0"), now: node(nic, "6.1.0"), then: true},
		"deselected":         {before: node(nic, "6.1.0"), now: node(nil, "6.1.0"), then: true},
		"never selected":     {before: node(nil, "6.1.0"), now: node(nil, "6.2.0")},
		"made":               {before: &corev1.Node{}, now: node(nic, "6.1.0"), then: true},
		"tells its kernel":   {before: node(nic, ""), now: node(nic, "6.1.0"), then: true},
		"made, not speaking": {before: &corev1.Node{}, now: node(nic, "")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := concerns(m, tc.before, tc.now); got != tc.then {
				t.Errorf("concerns is %t", got)
			}
		})
	}
}
