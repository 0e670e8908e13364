// SPDX-License-Identifier: Apache-2.0

package moduleimage

import (
	"fmt"
	"slices"
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

// jobs is what an image's Jobs show.
type jobs struct {
	image *v1alpha1.ModuleImage
	now   time.Time
	// runs are the Jobs, in order; last is the newest, good the newest that succeeded, or nil.
	runs       []pipeline.Run
	last, good *pipeline.Run
	// failures are the Jobs that failed since the last success and still count, the newest first.
	failures []*pipeline.Run
	// gone: a node has not found the image since it was made or checked.
	gone bool
}

// decision is what to do about one image.
type decision struct {
	jobs
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
	d := &decision{jobs: jobs{image: image, now: now, runs: runs}, next: 1}
	wanted := len(image.Spec.WantedBy) > 0
	coming := d.settle()
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
		d.last = r
		if r.Succeeded {
			d.good = r
		}
	}
	d.failures = failuresOf(image, runs)
	// No node gets an image that is only examined.
	d.gone = d.good != nil && image.Spec.Examine == nil && lost.After(d.good.Finished)
	if wanted && image.DeletionTimestamp == nil {
		d.cause, d.again = d.due()
	}
	d.drop = append(d.drop, d.spent()...)
	if coming > 0 {
		d.again = coming
	}
	if d.gone && found(d.good) {
		d.gone = false // the registry was checked because of it, and has the image: the node's condition says so
	}
	d.report(wanted)
	return d
}

// yield has an image wait as if nobody wanted it.
func yield(image, rival *v1alpha1.ModuleImage, runs []pipeline.Run, lost, now time.Time) *decision {
	waiting := image.DeepCopy()
	waiting.Spec.WantedBy = nil
	d := decide(waiting, runs, lost, now)
	d.status.Conditions = nil
	c := unavailable(v1beta1.ReasonImageConflict, "%s", pipeline.Clash(image, rival))
	d.stamp(c)
	c.Type, c.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
	d.stamp(c)
	return d
}

// report fills in the status.
func (d *decision) report(wanted bool) {
	d.status = d.shown(d.again > 0)
	if d.cause != "" {
		// The next pass sees the new Job.
		d.status.Job = pipeline.JobName(d.image, d.next)
	}
	works := d.last != nil && d.last.Active()
	c := d.available(d.status.Job, works || d.cause != "")
	d.stamp(c)
	if wanted && c.Status != metav1.ConditionTrue {
		// For kstatus: whether the operator still tries.
		c.Type, c.Status = v1alpha1.ConditionReconciling, metav1.ConditionTrue
		if d.cause == "" && d.again == 0 && !works {
			c.Type = v1alpha1.ConditionStalled
		}
		d.stamp(c)
	}
}

// settle corrects Jobs: one whose pod's end has not arrived in the cache counts as active, for a
// while, and one whose pod is gone without a result has failed. It returns when to look again at
// the first kind.
func (j *jobs) settle() (coming time.Duration) {
	for i := range j.runs {
		r := &j.runs[i]
		if rest := r.Finished.Add(arrival).Sub(j.now); r.Unseen && rest > 0 {
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
func (j *jobs) spent() []*pipeline.Run {
	var drop []*pipeline.Run
	for i := range j.runs {
		r := &j.runs[i]
		switch {
		case r == j.good || r.Active():
		case j.good != nil && r.Number < j.good.Number && !j.sought(r), len(j.runs)-i > 4*failureLimit:
			drop = append(drop, r)
		}
	}
	return drop
}

func failuresOf(image *v1alpha1.ModuleImage, runs []pipeline.Run) []*pipeline.Run {
	var failed []*pipeline.Run
	for i := range slices.Backward(runs) {
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

// forgotten reports whether a retry was asked for after the Job was made.
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

// due says why the next Job is due now, or when to look again.
func (j *jobs) due() (cause string, again time.Duration) {
	switch last := j.last; {
	case last == nil:
		return causeNew, 0
	case last.Active(), last.Failed && givenUp(j.failures):
		return "", 0
	case last.Failed && len(j.failures) > 0:
		if rest := last.Finished.Add(pauseAfter(j.failures)).Sub(j.now); rest > 0 {
			return "", rest
		}
		return causeRetry, 0
	case last.Failed:
		return causeRetry, 0
	case outdated(j.image, last):
		return causeTrigger, 0
	case pipeline.MadeForTrial(&j.image.Spec):
		return "", 0 // no registry holds it
	}
	rest := j.last.Finished.Add(checkPeriod).Sub(j.now)
	if j.gone {
		healed, doubts := j.searches()
		switch believed := j.good.Finished.Add(firstDoubt << (max(doubts, 1) - 1)).Sub(j.now); {
		case found(j.good) && believed > 0:
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
func (j *jobs) sought(r *pipeline.Run) bool {
	return r.Job.Annotations[pipeline.CauseAnnotation] == causeLost && j.now.Sub(r.Finished) < checkPeriod
}

// searches counts the Jobs that made a lost image again, and those that found it.
func (j *jobs) searches() (healed, doubts int) {
	for i := range j.runs {
		switch r := &j.runs[i]; {
		case !j.sought(r):
		case found(r):
			doubts++
		default:
			healed++
		}
	}
	return healed, doubts
}

// shown is the status without conditions. waits: another try comes by time alone.
func (j *jobs) shown(waits bool) v1alpha1.ModuleImageStatus {
	s := v1alpha1.ModuleImageStatus{ObservedGeneration: j.image.Generation, Failures: int32(min(len(j.failures), failureLimit))}
	if j.last != nil {
		s.Job = j.last.Job.Name
	}
	if good := j.good; good != nil && (!pipeline.MadeForTrial(&j.image.Spec) || good.Outcome.State.Present()) {
		s.Image = pipeline.ByDigest(j.image.Spec.Image, good.Outcome.Digest)
		s.Prebuilt = good.Outcome.State == result.StatePrebuilt
		s.CheckedAt = &metav1.Time{Time: good.Finished}
		if signer := good.Outcome.Signer; signer != nil {
			s.Signer = &v1alpha1.Signer{Fingerprint: signer.Fingerprint, Subject: signer.Subject}
			if !signer.NotAfter.IsZero() {
				s.Signer.NotAfter = &metav1.Time{Time: signer.NotAfter.UTC().Truncate(time.Second)}
			}
		}
	}
	if len(j.failures) > 0 && waits {
		s.NextTry = &metav1.Time{Time: j.failures[0].Finished.Add(pauseAfter(j.failures))}
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

func available(message string) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonImagesAvailable, Message: message,
	}
}

func unavailable(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// stamp adds a condition to the status; its time only changes with its status.
func (d *decision) stamp(c metav1.Condition) {
	c.ObservedGeneration = d.image.Generation
	c.LastTransitionTime = metav1.NewTime(d.now.Truncate(time.Second))
	if old := meta.FindStatusCondition(d.image.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	d.status.Conditions = append(d.status.Conditions, c)
}

// available is the condition of that name. job is the newest Job; busy: it is active, or about to
// be made.
func (j *jobs) available(job string, busy bool) metav1.Condition {
	spec, failures := &j.image.Spec, j.failures
	// A later Job that found the image missing knows better than the one that made it.
	missed := len(failures) > 0 && (failures[0].Outcome.State == result.StateMissing || failures[0].Outcome.State == result.StateOutdated)
	verb := "makes"
	if spec.Examine != nil && !pipeline.MadeForTrial(spec) {
		// Each Job examines the image again; only an unreachable registry says nothing new.
		missed, verb = len(failures) > 0 && failures[0].Outcome.Reason != v1beta1.ReasonCheckFailed, "examines"
	}
	text := "The registry has " + spec.Image
	switch {
	case j.gone && missed:
		f := failures[0].Outcome
		return unavailable(f.Reason, "the registry has lost %s, which is made again; %s: %s", spec.Image, tries(failures), f.Message)
	case j.gone && len(failures) > 0: // nobody knows: a node's word is not the registry's
		f := failures[0].Outcome
		return available(fmt.Sprintf("%s, as far as is known: a node has not found it, and the registry cannot be asked: %s", text, f.Message))
	case j.gone && busy:
		return unavailable(v1beta1.ReasonImageNotFound, "the registry has lost %s; Job %s makes it again", spec.Image, job)
	case j.gone:
		return unavailable(v1beta1.ReasonImageNotFound,
			"the registry has lost %s, although it was made %d times within a day: check what deletes it there", spec.Image, healLimit)
	case j.good != nil && !missed:
		if spec.Examine != nil {
			text = "Nothing found speaks against loading " + spec.Image + " on kernel " + spec.KernelVersion
		}
		return available(text)
	case len(failures) > 0:
		f := failures[0].Outcome
		return unavailable(f.Reason, "image %s for kernel %s, %s: %s", spec.Image, spec.KernelVersion, tries(failures), f.Message)
	case j.last != nil && j.last.Active() && j.last.Outcome.Reason != "":
		return unavailable(j.last.Outcome.Reason, "Job %s: %s", job, j.last.Outcome.Message)
	case busy:
		return unavailable(v1beta1.ReasonBuilding, "Job %s %s image %s for kernel %s", job, verb, spec.Image, spec.KernelVersion)
	}
	return unavailable(v1beta1.ReasonBuilding, "image %s for kernel %s is about to be made", spec.Image, spec.KernelVersion)
}
