// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/build/pipeline/result"
)

const (
	failureLimit = pipeline.FailureLimit
	// firstPause doubles with every failure, up to longPause.
	firstPause, longPause = 30 * time.Second, 15 * time.Minute
	// checkPeriod is how often the registry is checked again.
	checkPeriod = 24 * time.Hour
	// healLimit is how often a lost image is made again within checkPeriod.
	healLimit = 3
	// firstDoubt is how long a registry that has the image is believed although a node did not find
	// it; it doubles with every check.
	firstDoubt = 15 * time.Minute
	// arrival is how much earlier than its pod's end a Job's may be seen, by another watch.
	arrival = time.Minute
	// silence is how long after its grace period a pod may exist before its kubelet counts as lost.
	silence = time.Minute
)

// The causes of Jobs.
const (
	causeNew     = "New"
	causeRetry   = "Retry"
	causeTrigger = "Trigger"
	causeDaily   = "Daily"
	causeLost    = "ImageNotFound"
)

// decision is what to do about one image.
type decision struct {
	// cause of the Job to create, number next; "" is none.
	cause string
	next  int
	// suspend are the active Jobs whose suspension changes, record the ended, drop the unneeded ones.
	suspend, record, drop []*pipeline.Run
	status                v1alpha1.ModuleImageStatus
	// again is when time alone changes the decision; 0: never.
	again time.Duration
}

// decide decides by an image's Jobs, in order. lost is when the newest delivery began that did not
// find the image; zero: none did.
func decide(image *v1alpha1.ModuleImage, runs []pipeline.Run, lost, now time.Time) *decision {
	d := &decision{next: 1}
	wanted := len(image.Spec.WantedBy) > 0
	coming := settle(runs, now)
	var last, good *pipeline.Run
	for i := range runs {
		r := &runs[i]
		d.next = max(d.next, r.Number+1)
		suspended := ptr.Deref(r.Job.Spec.Suspend, false)
		rest := r.Removed.Add(silence).Sub(now)
		switch {
		case r.Active() && wanted && !suspended && !r.Removed.IsZero() && rest <= 0:
			// Its node is lost: Kubernetes waits for the pod's end, which nobody reports.
			d.drop = append(d.drop, r)
			continue
		case r.Active() && wanted && r.Stale && !r.Unseen && (suspended || r.Outcome.Reason != ""):
			// It has done nothing yet, and would do it with settings that have changed since.
			d.drop = append(d.drop, r)
			continue
		case r.Active() && suspended == wanted && !r.Unseen:
			d.suspend = append(d.suspend, r)
		case !r.Active() && !r.Recorded:
			d.record = append(d.record, r)
		}
		if r.Active() && !r.Removed.IsZero() && rest > 0 {
			coming = rest
		}
		last = r
		if r.Succeeded {
			good = r
		}
	}
	failures := failuresOf(image, runs)
	// No node gets an image that is only examined.
	gone := good != nil && image.Spec.Examine == nil && lost.After(good.Finished)
	if wanted && image.DeletionTimestamp == nil {
		d.cause, d.again = cause(image, runs, last, good, gone, failures, now)
	}
	d.drop = append(d.drop, spent(runs, good, now)...)
	if coming > 0 {
		d.again = coming
	}
	if gone && found(good) {
		gone = false // the registry was checked because of it, and has the image: the node's condition says so
	}
	d.status = statusOf(image, last, good, failures, gone, now, d.again)
	if d.cause != "" {
		// The next pass sees the new Job.
		d.status.Job = pipeline.JobName(image, d.next)
	}
	c := condition(image, d.status.Job, working(last) || d.cause != "", last, good, failures, gone)
	stamp(&d.status, image, now, c)
	if wanted && c.Status != metav1.ConditionTrue {
		stamp(&d.status, image, now, d.goesOn(c, working(last)))
	}
	return d
}

// goesOn is the condition, for kstatus, that says whether the operator still tries.
func (d *decision) goesOn(why metav1.Condition, works bool) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: why.Reason, Message: why.Message}
	if d.cause == "" && d.again == 0 && !works {
		c.Type = v1alpha1.ConditionStalled
	}
	return c
}

// settle corrects Jobs: one whose pod's end has not arrived in the cache counts as active, for a
// while, and one whose pod is gone without a result has failed. It returns when to look again at
// the first kind.
func settle(runs []pipeline.Run, now time.Time) (coming time.Duration) {
	for i := range runs {
		r := &runs[i]
		if rest := r.Finished.Add(arrival).Sub(now); r.Unseen && rest > 0 {
			r.Succeeded, r.Failed, coming = false, false, rest
			continue
		}
		r.Unseen = false
		if r.Succeeded && r.Outcome.Digest == "" {
			r.Succeeded, r.Failed = false, true
			r.Outcome.Reason, r.Outcome.Passing = v1beta1.ReasonCheckFailed, true
			r.Outcome.Message = "Job " + r.Job.Name + " succeeded, but its pod was deleted before the operator read the result"
		}
	}
	return coming
}

// spent are Jobs that no longer matter: failures beyond counting, and Jobs before the good one,
// except for those that say how often a lost image was sought.
func spent(runs []pipeline.Run, good *pipeline.Run, now time.Time) []*pipeline.Run {
	var drop []*pipeline.Run
	for i := range runs {
		r := &runs[i]
		switch {
		case r == good || r.Active():
		case good != nil && r.Number < good.Number && !sought(r, now), len(runs)-i > 4*failureLimit:
			drop = append(drop, r)
		}
	}
	return drop
}

// failuresOf are the Jobs that failed since the last success and still count, the newest first.
func failuresOf(image *v1alpha1.ModuleImage, runs []pipeline.Run) []*pipeline.Run {
	var failed []*pipeline.Run
	for i := len(runs) - 1; i >= 0; i-- {
		r := &runs[i]
		if r.Succeeded {
			break
		}
		if r.Failed && !r.Stale && !outdated(image, r) && !forgotten(image, r) {
			failed = append(failed, r)
		}
	}
	return failed
}

// forgotten reports whether somebody asked for a retry since the Job was made.
func forgotten(image *v1alpha1.ModuleImage, r *pipeline.Run) bool {
	asked := pipeline.RetryOf(&image.Spec)
	return asked != "" && r.Job.Annotations[v1beta1.RetryAnnotation] != asked
}

// outdated reports whether the Job was made for another rebuild trigger.
func outdated(image *v1alpha1.ModuleImage, r *pipeline.Run) bool {
	trigger, ok := r.Job.Annotations[pipeline.TriggerAnnotation]
	if image.Spec.Trigger == nil {
		return ok
	}
	return trigger != strconv.Itoa(*image.Spec.Trigger)
}

// cause says why the next Job is due now, or when to look again.
func cause(
	image *v1alpha1.ModuleImage, runs []pipeline.Run, last, good *pipeline.Run, gone bool, failures []*pipeline.Run, now time.Time,
) (string, time.Duration) {
	switch {
	case last == nil:
		return causeNew, 0
	case last.Active():
		return "", 0
	case last.Failed && givenUp(failures):
		return "", 0
	case last.Failed && len(failures) > 0:
		if rest := last.Finished.Add(pauseAfter(failures)).Sub(now); rest > 0 {
			return "", rest
		}
		return causeRetry, 0
	case last.Failed:
		return causeRetry, 0
	case outdated(image, last):
		return causeTrigger, 0
	case pipeline.MadeForTrial(&image.Spec):
		return "", 0 // no registry holds it
	}
	rest := last.Finished.Add(checkPeriod).Sub(now)
	if gone {
		healed, doubts := soughtOf(runs, now)
		switch believed := good.Finished.Add(firstDoubt << (max(doubts, 1) - 1)).Sub(now); {
		case found(good) && believed > 0:
			rest = min(rest, believed)
		case healed < healLimit:
			return causeLost, 0
		}
	}
	if rest > 0 {
		return "", rest
	}
	return causeDaily, 0
}

// givenUp reports whether the operator no longer tries: too many failures, the last among them,
// come from what the image is made from. Other failures are retried without limit.
func givenUp(failures []*pipeline.Run) bool {
	own := 0
	for _, r := range failures {
		if !r.Outcome.Passing {
			own++
		}
	}
	return own >= failureLimit && !failures[0].Outcome.Passing
}

// pauseAfter failures doubles with each.
func pauseAfter(failures []*pipeline.Run) time.Duration {
	return min(firstPause<<min(len(failures)-1, failureLimit), longPause)
}

// found reports whether the registry has the image although a node did not find it.
func found(r *pipeline.Run) bool {
	return r.Job.Annotations[pipeline.CauseAnnotation] == causeLost && r.Outcome.State.Present()
}

// sought reports whether a Job of the last period was made because a node did not find the image.
func sought(r *pipeline.Run, now time.Time) bool {
	return r.Job.Annotations[pipeline.CauseAnnotation] == causeLost && now.Sub(r.Finished) < checkPeriod
}

// soughtOf counts the Jobs that made a lost image again, and those that found it.
func soughtOf(runs []pipeline.Run, now time.Time) (healed, doubts int) {
	for i := range runs {
		switch r := &runs[i]; {
		case !sought(r, now):
		case found(r):
			doubts++
		default:
			healed++
		}
	}
	return healed, doubts
}

// statusOf is what the Jobs show.
func statusOf(
	image *v1alpha1.ModuleImage, last, good *pipeline.Run, failures []*pipeline.Run, gone bool, now time.Time, again time.Duration,
) v1alpha1.ModuleImageStatus {
	s := v1alpha1.ModuleImageStatus{ObservedGeneration: image.Generation, Failures: int32(min(len(failures), failureLimit))}
	if last != nil {
		s.Job = last.Job.Name
	}
	if good != nil && (!pipeline.MadeForTrial(&image.Spec) || good.Outcome.State.Present()) {
		s.Image = pipeline.ByDigest(image.Spec.Image, good.Outcome.Digest)
		s.Prebuilt = good.Outcome.State == result.StatePrebuilt
		s.CheckedAt = &metav1.Time{Time: good.Finished}
		if signer := good.Outcome.Signer; signer != nil {
			s.Signer = &v1alpha1.Signer{Fingerprint: signer.Fingerprint, Subject: signer.Subject}
			if !signer.NotAfter.IsZero() {
				s.Signer.NotAfter = &metav1.Time{Time: signer.NotAfter.UTC().Truncate(time.Second)}
			}
		}
	}
	if len(failures) > 0 && again > 0 {
		s.NextTry = &metav1.Time{Time: failures[0].Finished.Add(pauseAfter(failures))}
	}
	return s
}

// tries counts the failures that have a limit; the number of others would only change the message.
func tries(failures []*pipeline.Run) string {
	if failures[0].Outcome.Passing {
		return "retried until it succeeds"
	}
	return fmt.Sprintf("try %d of %d", min(len(failures), failureLimit), failureLimit)
}

func unavailable(reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// working reports whether the newest Job is active.
func working(last *pipeline.Run) bool { return last != nil && last.Active() }

// stamp adds a condition to a status; its time only changes with its status.
func stamp(s *v1alpha1.ModuleImageStatus, image *v1alpha1.ModuleImage, now time.Time, c metav1.Condition) {
	c.ObservedGeneration = image.Generation
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	if old := meta.FindStatusCondition(image.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.Conditions = append(s.Conditions, c)
}

// condition is Available. job is the newest Job; busy: it is active, or about to be made.
func condition(
	image *v1alpha1.ModuleImage, job string, busy bool, last, good *pipeline.Run, failures []*pipeline.Run, gone bool,
) metav1.Condition {
	// A later Job that found the image missing knows better than the one that made it.
	missed := len(failures) > 0 && (failures[0].Outcome.State == result.StateMissing || failures[0].Outcome.State == result.StateOutdated)
	verb := "makes"
	if look := image.Spec.Examine != nil && !pipeline.MadeForTrial(&image.Spec); look {
		// Each Job examines the image again; only an unreachable registry says nothing new.
		missed, verb = len(failures) > 0 && failures[0].Outcome.Reason != v1beta1.ReasonCheckFailed, "examines"
	}
	switch {
	case gone && busy:
		return unavailable(v1beta1.ReasonImageNotFound, fmt.Sprintf("the registry has lost %s; Job %s makes it again", image.Spec.Image, job))
	case gone:
		return unavailable(v1beta1.ReasonImageNotFound,
			fmt.Sprintf("the registry has lost %s, although it was made %d times within a day: check what deletes it there", image.Spec.Image,
				healLimit))
	case good != nil && !missed:
		text := "The registry has " + image.Spec.Image
		if image.Spec.Examine != nil {
			text = "Nothing found speaks against loading " + image.Spec.Image + " on kernel " + image.Spec.KernelVersion
		}
		return metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonImagesAvailable,
			Message: text}
	case len(failures) > 0:
		f := failures[0]
		return unavailable(f.Outcome.Reason, fmt.Sprintf("image %s for kernel %s, %s: %s", image.Spec.Image, image.Spec.KernelVersion,
			tries(failures), f.Outcome.Message))
	case working(last) && last.Outcome.Reason != "":
		return unavailable(last.Outcome.Reason, fmt.Sprintf("Job %s: %s", job, last.Outcome.Message))
	case busy:
		return unavailable(v1beta1.ReasonBuilding,
			fmt.Sprintf("Job %s %s image %s for kernel %s", job, verb, image.Spec.Image, image.Spec.KernelVersion))
	}
	return unavailable(v1beta1.ReasonBuilding,
		fmt.Sprintf("image %s for kernel %s is about to be made", image.Spec.Image, image.Spec.KernelVersion))
}
