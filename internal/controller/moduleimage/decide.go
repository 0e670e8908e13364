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
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/pipeline/result"
)

const (
	// failureLimit is how many Jobs may fail one after the other until somebody has to say something. Failures that pass are not counted.
	failureLimit = pipeline.FailureLimit
	// firstPause doubles with every failure, up to longPause.
	firstPause, longPause = 30 * time.Second, 15 * time.Minute
	// checkPeriod is how often the registry is asked again.
	checkPeriod = 24 * time.Hour
	// healLimit is how often a lost image is built again within checkPeriod.
	healLimit = 3
	// firstDoubt is how long a registry that has the image is believed although a node was told that it has not; it doubles with every look.
	firstDoubt = 15 * time.Minute
	// arrival is how long a Job's end may be here before its pod's: they come by different watches.
	arrival = time.Minute
	// silence is how long after its grace period a pod may be there, until its kubelet is taken for lost.
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
	// suspend are the active Jobs whose suspension is to be changed, record those that ended, drop those that nobody needs.
	suspend, record, drop []*pipeline.Run
	status                v1alpha1.ModuleImageStatus
	// again is until time alone changes the decision; 0: never.
	again time.Duration
}

// decide looks at an image's Jobs, in order. lost is when the newest delivery was begun that did not find the image; zero: none was.
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
			// Its node is lost: Kubernetes waits for the pod's end, which nobody tells.
			d.drop = append(d.drop, r)
			continue
		case r.Active() && wanted && r.Stale && !r.Unseen && (suspended || r.Told.Reason != ""):
			// It has done nothing yet, and would do it with settings that were mended since.
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
	// What is only examined is no node's: a carrier does not tell of it.
	gone := good != nil && image.Spec.Examine == nil && lost.After(good.Finished)
	if wanted && image.DeletionTimestamp == nil {
		d.cause, d.again = cause(image, runs, last, good, gone, failures, now)
	}
	d.drop = append(d.drop, spent(runs, good, now)...)
	if coming > 0 {
		d.again = coming
	}
	if gone && found(good) {
		gone = false // the registry was asked because of it, and has the image: the node is told by its own condition
	}
	d.status = statusOf(image, last, good, failures, gone, now, d.again)
	if d.cause != "" {
		// The Job that is about to be made is what the next pass sees.
		d.status.Job = pipeline.JobName(image, d.next)
	}
	c := condition(image, d.status.Job, working(last) || d.cause != "", last, good, failures, gone)
	stamp(&d.status, image, now, c)
	if wanted && c.Status != metav1.ConditionTrue {
		stamp(&d.status, image, now, d.goesOn(c, working(last)))
	}
	return d
}

// goesOn says of an image that is not there whether anything more is done for it: kstatus asks.
func (d *decision) goesOn(why metav1.Condition, works bool) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: why.Reason, Message: why.Message}
	if d.cause == "" && d.again == 0 && !works {
		c.Type = v1alpha1.ConditionStalled
	}
	return c
}

// settle takes Jobs for what they are: one whose pod's end is still to arrive here is at work, for a while; and of one whose pod is gone, nobody knows
// whether the image is there. It returns when to look again at the first kind.
func settle(runs []pipeline.Run, now time.Time) (coming time.Duration) {
	for i := range runs {
		r := &runs[i]
		if rest := r.Finished.Add(arrival).Sub(now); r.Unseen && rest > 0 {
			r.Succeeded, r.Failed, coming = false, false, rest
			continue
		}
		r.Unseen = false
		if r.Succeeded && r.Told.Digest == "" {
			r.Succeeded, r.Failed = false, true
			r.Told.Reason, r.Told.Message = v1beta1.ReasonCheckFailed, "Job "+r.Job.Name+" ended well, and its pod was gone before anybody read what it told"
			r.Told.Passing = true
		}
	}
	return coming
}

// spent are Jobs that say nothing any more: earlier ones than the good one, but those that tell how often the registry was asked for an image that it
// lost, and failures that are too many to count.
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

// failuresOf are the Jobs that failed since the last one that did not, as far as they still count.
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

// forgotten: a retry was asked for since the Job was made.
func forgotten(image *v1alpha1.ModuleImage, r *pipeline.Run) bool {
	asked := pipeline.RetryOf(&image.Spec)
	return asked != "" && r.Job.Annotations[v1beta1.RetryAnnotation] != asked
}

// outdated: the Job was made for another rebuild trigger.
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
		return "", 0 // it is nowhere to be looked for again
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

// givenUp reports whether nobody tries any more: what the image is made from failed too often, and the last time, too. What passes is tried for ever.
func givenUp(failures []*pipeline.Run) bool {
	own := 0
	for _, r := range failures {
		if !r.Told.Passing {
			own++
		}
	}
	return own >= failureLimit && !failures[0].Told.Passing
}

// pauseAfter failures doubles with each.
func pauseAfter(failures []*pipeline.Run) time.Duration {
	return min(firstPause<<min(len(failures)-1, failureLimit), longPause)
}

// found reports whether a Job that was made because a node did not find the image found it: then the registry has it, and what the node asks has not.
func found(r *pipeline.Run) bool {
	return r.Job.Annotations[pipeline.CauseAnnotation] == causeLost && (r.Told.State == result.StateCurrent || r.Told.State == result.StatePrebuilt)
}

// sought reports whether a Job of the last period was made because a node did not find the image.
func sought(r *pipeline.Run, now time.Time) bool {
	return r.Job.Annotations[pipeline.CauseAnnotation] == causeLost && now.Sub(r.Finished) < checkPeriod
}

// soughtOf counts the Jobs that made the image again because the registry had forgotten it, and those that found it there.
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
	if good != nil && (!pipeline.MadeForTrial(&image.Spec) || good.Told.State == result.StateCurrent || good.Told.State == result.StatePrebuilt) {
		s.Image = pipeline.ByDigest(image.Spec.Image, good.Told.Digest)
		s.Prebuilt = good.Told.State == result.StatePrebuilt
		s.CheckedAt = &metav1.Time{Time: good.Finished}
		if signer := good.Told.Signer; signer != nil {
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

// tries counts the failures: those of what the image is made from up to their limit. Others go on, so their number would only change the message.
func tries(failures []*pipeline.Run) string {
	if failures[0].Told.Passing {
		return "tried again until it works"
	}
	return fmt.Sprintf("try %d of %d", min(len(failures), failureLimit), failureLimit)
}

// working reports whether the newest Job is at work.
func working(last *pipeline.Run) bool { return last != nil && last.Active() }

// stamp adds a condition to a status; its time changes with its status only.
func stamp(s *v1alpha1.ModuleImageStatus, image *v1alpha1.ModuleImage, now time.Time, c metav1.Condition) {
	c.ObservedGeneration = image.Generation
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	if old := meta.FindStatusCondition(image.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.Conditions = append(s.Conditions, c)
}

// condition says how the image stands. job is the newest Job, busy whether it is, or is about to be, at work.
func condition(
	image *v1alpha1.ModuleImage, job string, busy bool, last, good *pipeline.Run, failures []*pipeline.Run, gone bool,
) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	// A later Job that found the image missing knows better than the one that made it.
	missed := len(failures) > 0 && (failures[0].Told.State == result.StateMissing || failures[0].Told.State == result.StateOutdated)
	verb := "makes"
	if look := image.Spec.Examine != nil && !pipeline.MadeForTrial(&image.Spec); look {
		// What is there is looked at again each time; that it could not be reached says nothing.
		missed, verb = len(failures) > 0 && failures[0].Told.Reason != v1beta1.ReasonCheckFailed, "looks at"
	}
	switch {
	case gone && busy:
		return no(v1beta1.ReasonImageNotFound, fmt.Sprintf("the registry has lost %s; Job %s makes it again", image.Spec.Image, job))
	case gone:
		return no(v1beta1.ReasonImageNotFound, fmt.Sprintf("the registry does not have %s, which was made %d times today", image.Spec.Image, healLimit))
	case good != nil && !missed:
		text := "The registry has " + image.Spec.Image
		if image.Spec.Examine != nil {
			text = "Nothing found speaks against loading " + image.Spec.Image + " on kernel " + image.Spec.KernelVersion
		}
		return metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonImagesAvailable, Message: text}
	case len(failures) > 0:
		f := failures[0]
		return no(f.Told.Reason, fmt.Sprintf("image %s for kernel %s, %s: %s", image.Spec.Image, image.Spec.KernelVersion, tries(failures), f.Told.Message))
	case working(last) && last.Told.Reason != "":
		return no(last.Told.Reason, fmt.Sprintf("Job %s: %s", job, last.Told.Message))
	case busy:
		return no(v1beta1.ReasonBuilding, fmt.Sprintf("Job %s %s image %s for kernel %s", job, verb, image.Spec.Image, image.Spec.KernelVersion))
	}
	return no(v1beta1.ReasonBuilding, fmt.Sprintf("image %s for kernel %s is to be made", image.Spec.Image, image.Spec.KernelVersion))
}
