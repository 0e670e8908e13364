// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// Outcome is what a Job's pod reported. The Job keeps it, because the pod may go first.
type Outcome struct {
	// State that check found.
	State result.State `json:"state,omitempty"`
	// Digest of the image in the registry, when the Job succeeded.
	Digest string `json:"digest,omitempty"`
	// Signer of the image.
	Signer *result.Signer `json:"signer,omitempty"`
	// Reason and Message of a failure, or of what the Job waits for.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Passing: the failure comes from outside the image's inputs, and is retried without limit.
	Passing bool `json:"passing,omitempty"`
}

// Run is the state of one Job of an image.
type Run struct {
	Job *batchv1.Job
	// Number of the Job, from 1.
	Number int
	// Succeeded and Failed are both false while it is active.
	Succeeded, Failed bool
	// Finished is when it ended.
	Finished time.Time
	// Outcome is what is known; Recorded: the annotation holds it.
	Outcome  Outcome
	Recorded bool
	// Unseen: the Job ended, and the cache does not show the end of its pod yet.
	Unseen bool
	// Removed is the time by which the kubelet should have ended a deleted pod, such as one evicted
	// from a lost node. Zero: the pod is not deleted.
	Removed time.Time
	// Stale: the Job was made with other settings than a Job of now. See [Settings].
	Stale bool
}

// Active reports whether the Job has not ended.
func (r *Run) Active() bool { return !r.Succeeded && !r.Failed }

// Runs reads an image's Jobs and their pods, in the order in which the Jobs were made.
func Runs(spec *v1alpha1.ModuleImageSpec, jobs []batchv1.Job, pods []corev1.Pod) []Run {
	runs := make([]Run, 0, len(jobs))
	for i := range jobs {
		r := Run{Job: &jobs[i], Number: number(jobs[i].Name)}
		for _, c := range jobs[i].Status.Conditions {
			if c.Status != corev1.ConditionTrue {
				continue
			}
			switch c.Type {
			case batchv1.JobComplete:
				r.Succeeded, r.Finished = true, c.LastTransitionTime.Time
			case batchv1.JobFailed:
				r.Failed, r.Finished = true, c.LastTransitionTime.Time
				// It stays so only after the deadline, or when the pod is gone.
				r.Outcome = Outcome{Reason: v1beta1.ReasonBuildFailed, Message: strings.TrimSpace(c.Reason + ": " + c.Message), Passing: true}
			}
		}
		var recorded Outcome
		if text, ok := jobs[i].Annotations[ResultAnnotation]; ok && json.Unmarshal([]byte(text), &recorded) == nil {
			r.Outcome, r.Recorded = recorded, true
		} else {
			pod := podOf(&jobs[i], pods)
			if pod != nil && pod.DeletionTimestamp != nil {
				r.Removed = pod.DeletionTimestamp.Time
			}
			r.Unseen = !r.Active() && pod != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
			r.Outcome = outcomeOf(spec, &jobs[i], pod, r.Outcome)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Number - b.Number })
	return runs
}

// number is the end of a Job's name; 0 if that is not a number.
func number(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// podOf is the newest pod of a Job.
func podOf(job *batchv1.Job, pods []corev1.Pod) (pod *corev1.Pod) {
	for i := range pods {
		if pods[i].Labels[batchv1.JobNameLabel] == job.Name && (pod == nil || pod.CreationTimestamp.Before(&pods[i].CreationTimestamp)) {
			pod = &pods[i]
		}
	}
	return pod
}

// outcomeOf reads the outcome from a Job's pod, or says why there is no pod that runs.
func outcomeOf(spec *v1alpha1.ModuleImageSpec, job *batchv1.Job, pod *corev1.Pod, otherwise Outcome) Outcome {
	t := otherwise
	switch {
	case pod == nil && len(job.Status.Conditions) == 0 && job.Status.StartTime != nil && job.Status.Active == 0:
		// The Job controller writes the start time and the count of pods at once.
		t.Reason = v1beta1.ReasonBuilding
		t.Message = "the cluster admits no pod of the Job (Pod Security, a quota or a policy): see kubectl describe job " + job.Name
		return t
	case pod == nil:
		return t
	case unschedulable(pod):
		t.Reason, t.Message = v1beta1.ReasonBuilding, homeless(pod.Name, job.Spec.Template.Spec.NodeSelector)
		return t
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ended := status.State.Terminated
		if ended == nil {
			continue
		}
		r, err := result.Parse(ended.Message)
		if ended.ExitCode != 0 {
			t.Reason, t.Message = failureOf(status.Name, r), message(spec, status.Name, ended, r)
			if cause := outsideCause(job, pod, status.Name, ended); cause != "" {
				t.Message, t.Passing = cause+": "+t.Message, true
				return t
			}
			t.Passing = passing(status.Name, r)
			return t
		}
		if err != nil {
			continue // a step of the user's
		}
		switch status.Name {
		case StepCheck:
			t.State = r.State
			if r.State.Present() {
				t.Digest, t.Signer = r.Digest, r.Signer
			}
		case StepSign:
			t.Signer = r.Signer
		case StepPush, StepExamine:
			if r.Digest != "" {
				t.Digest = r.Digest
			}
		}
	}
	if p := delivery.ProblemOf(pod); p != nil && pod.Status.Phase == corev1.PodPending {
		t.Reason, t.Message = p.Reason, p.Message
		if p.Reason == v1beta1.ReasonDeliveryRefused {
			t.Reason = v1beta1.ReasonBuildFailed
		}
	}
	if cause := nodeCause(pod); cause != "" && pod.Status.Phase == corev1.PodFailed {
		// No step has failed: the kubelet did not let the pod in, or ended it between two steps.
		t.Reason, t.Message, t.Passing = v1beta1.ReasonBuildFailed, cause, true
	}
	return t
}

// nodeCause says why the kubelet refused or ended a pod; "" if it did not.
func nodeCause(pod *corev1.Pod) string {
	if pod.Status.Reason == "" {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("node %s ended the pod: %s %s", pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message))
}

func unschedulable(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// failures are the reasons of failed steps; of others it is [v1beta1.ReasonBuildFailed].
var failures = map[string]string{
	StepCheck: v1beta1.ReasonCheckFailed, StepSign: v1beta1.ReasonSignFailed, StepPull: v1beta1.ReasonSignFailed,
	StepPush: v1beta1.ReasonPushFailed, StepPushUnsigned: v1beta1.ReasonPushFailed,
}

func failureOf(step string, r *result.Result) string {
	if step == StepExamine {
		return unfit(r)
	}
	return cmp.Or(failures[step], v1beta1.ReasonBuildFailed)
}

// message is a failed container's error: its result's, or the end of its log.
func message(spec *v1alpha1.ModuleImageSpec, step string, ended *corev1.ContainerStateTerminated, r *result.Result) string {
	text := ended.Message
	switch b := builderOf(spec); {
	case step == StepExamine && r != nil && r.Unfit != "":
		return r.Error // it is about the image, not the step
	case r != nil && r.Error != "":
		text = r.Error
	case step == StepBuild && b != nil:
		text = b.explain(text)
	default:
		text = excerpt(text, "error")
	}
	if text == "" {
		text = ended.Reason
	}
	return fmt.Sprintf("step %s failed with exit code %d: %s", step, ended.ExitCode, withoutCredentials(text))
}

// credentials in an address, up to its last @, as programs read it: more people see a condition
// than a log, which quotes them.
var credentials = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^/\s]+@`)

func withoutCredentials(text string) string { return credentials.ReplaceAllString(text, "${1}…@") }

// Record is the value of [ResultAnnotation].
func Record(o *Outcome) string { return string(encode(o)) }

// RetryOf is the value of v1beta1.RetryAnnotation on a Job of the image: the newest wish to retry,
// which the Job answers. Only equality counts: clocks may differ. Empty: no wish.
func RetryOf(spec *v1alpha1.ModuleImageSpec) string {
	if spec.Retry == nil {
		return ""
	}
	return spec.Retry.UTC().Format(time.RFC3339)
}

// FailureLimit is how many Jobs may fail by the image's inputs before the operator gives up.
const FailureLimit = 5

// passing reports whether a failure of one of our steps may pass by itself. So may that of a
// missing Secret, since the operator cannot read Secrets and see it come.
func passing(step string, r *result.Result) bool {
	if r == nil {
		return step != StepBuild // killed before it could tell
	}
	switch r.Reason {
	case result.ReasonUnavailable, result.ReasonUnauthorized, result.ReasonTLS, result.ReasonNotFound, result.ReasonPrebuilt:
		return true
	case result.ReasonFailed, "":
		return step == StepCheck || step == StepPush || step == StepPushUnsigned || step == StepPull || step == StepExamine ||
			strings.HasPrefix(step, StepFetch)
	case result.ReasonInvalid, result.ReasonKey:
		return step == StepCheck || step == StepExamine
	case result.ReasonImageRefused, result.ReasonNotModule, result.ReasonNothingToSign, result.ReasonUnfit:
	}
	return false
}

// outages are what programs print, in lower case, when something outside of a build makes it fail.
var outages = []struct {
	says  []string
	means string
}{
	{[]string{"no space left on device", "disk quota exceeded"}, "the node's disk is full"},
	{[]string{"killed signal terminated program", "cannot allocate memory", "out of memory"}, "the build needs more memory than its limit"},
	{[]string{"toomanyrequests", "429 too many requests", "too many requests"}, "a server limits the rate of requests"},
	{[]string{"unauthorized: ", "authentication required"}, "a registry refuses the credentials"},
	{
		[]string{
			"connection refused", "connection reset by peer", "i/o timeout", "tls handshake timeout", "no route to host", "network is unreachable",
			"no such host", "temporary failure in name resolution", "temporary failure resolving", "could not resolve", "connection timed out",
			"502 bad gateway", "503 service unavailable", "504 gateway", "500 internal server error",
		},
		"a server cannot be reached",
	},
}

// outsideCause says what ended a step from outside, by the kubelet or the log; "" is unknown.
func outsideCause(job *batchv1.Job, pod *corev1.Pod, step string, ended *corev1.ContainerStateTerminated) string {
	switch {
	case ended.Reason == "OOMKilled":
		return "out of memory: step " + step + " needs more than its limit" + limitOf(&job.Spec.Template.Spec, step)
	case pod.Status.Reason != "":
		return nodeCause(pod)
	case step != StepBuild:
		return ""
	}
	log := strings.ToLower(ended.Message)
	for _, outage := range outages {
		if slices.ContainsFunc(outage.says, func(words string) bool { return strings.Contains(log, words) }) {
			return outage.means
		}
	}
	return ""
}

// limitOf is a step's memory limit, in brackets. The cache only keeps it for Jobs.
func limitOf(pod *corev1.PodSpec, step string) string {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && c.Name == step {
			return " (" + limit.String() + ")"
		}
	}
	return ""
}
