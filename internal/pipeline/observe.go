// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
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
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/pipeline/result"
)

// Told is what a Job's pod told. It is kept as an annotation of the Job, for the pod may go first.
type Told struct {
	// State that check found.
	State result.State `json:"state,omitempty"`
	// Digest of the image in the registry, when the Job succeeded.
	Digest string `json:"digest,omitempty"`
	// Signer of the image.
	Signer *result.Signer `json:"signer,omitempty"`
	// Reason and Message of a failure, or of what the Job waits for.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Passing: what failed is the world (a registry, a node, a disk), and not what the image is made from. It is tried again for as long as it lasts.
	Passing bool `json:"passing,omitempty"`
}

// Run is one Job of an image as far as it has come.
type Run struct {
	Job *batchv1.Job
	// Number of the Job, from 1.
	Number int
	// Succeeded and Failed are both false while it is at work.
	Succeeded, Failed bool
	// Finished is when it ended.
	Finished time.Time
	// Told is what is known of it; Recorded, that it stands in the annotation.
	Told     Told
	Recorded bool
	// Unseen: the Job ended, and its pod is still at work as far as is known here. What it told is on its way.
	Unseen bool
	// Removed is until when the kubelet was to end the Job's pod, where somebody asked for it, such as the eviction from a node that is lost. Zero: none did.
	Removed time.Time
	// Stale: the Job was made with other settings than those of now. See [Settings].
	Stale bool
}

// Active reports whether the Job is still at work.
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
				// Nothing but the time being over, or a pod that is gone, leaves this as it is.
				r.Told = Told{Reason: v1beta1.ReasonBuildFailed, Message: strings.TrimSpace(c.Reason + ": " + c.Message), Passing: true}
			}
		}
		var recorded Told
		if text, ok := jobs[i].Annotations[ResultAnnotation]; ok && json.Unmarshal([]byte(text), &recorded) == nil {
			r.Told, r.Recorded = recorded, true
		} else {
			pod := podOf(&jobs[i], pods)
			if pod != nil && pod.DeletionTimestamp != nil {
				r.Removed = pod.DeletionTimestamp.Time
			}
			r.Unseen = !r.Active() && pod != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
			r.Told = told(spec, &jobs[i], pod, r.Told)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Number - b.Number })
	return runs
}

// number is the end of a Job's name; 0 for a name that is none of ours.
func number(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// podOf is the pod of a Job: the last one, if nodes took others away.
func podOf(job *batchv1.Job, pods []corev1.Pod) (pod *corev1.Pod) {
	for i := range pods {
		if pods[i].Labels[batchv1.JobNameLabel] == job.Name && (pod == nil || pod.CreationTimestamp.Before(&pods[i].CreationTimestamp)) {
			pod = &pods[i]
		}
	}
	return pod
}

// told reads what a Job's pod says, or what there is to say while there is none.
func told(spec *v1alpha1.ModuleImageSpec, job *batchv1.Job, pod *corev1.Pod, otherwise Told) Told {
	t := otherwise
	switch {
	case pod == nil && len(job.Status.Conditions) == 0 && job.Status.StartTime != nil && job.Status.Active == 0:
		// The Job controller counts a pod in the same write in which it says that it began.
		t.Reason, t.Message = v1beta1.ReasonBuilding, "the cluster admits no pod of it (Pod Security, a quota or a policy); kubectl describe job "+job.Name+" quotes why"
		return t
	case pod == nil:
		return t
	case unschedulable(pod):
		// The scheduler's own words count nodes, and would change all the time.
		t.Reason, t.Message = v1beta1.ReasonBuilding, "no node takes its pod; kubectl describe pod "+pod.Name+" quotes why"
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
			if world := worldOf(job, pod, status.Name, ended); world != "" {
				t.Message, t.Passing = world+": "+t.Message, true
				return t
			}
			t.Passing = passing(status.Name, r)
			return t
		}
		if err != nil {
			continue // a step of the user's, or one that had nothing to do
		}
		switch status.Name {
		case StepCheck:
			t.State = r.State
			if r.State == result.StateCurrent || r.State == result.StatePrebuilt {
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
		t.Reason, t.Message = waitingFor(p.Reason), p.Message
	}
	return t
}

func unschedulable(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// failureOf is the reason for a step that failed.
func failureOf(step string, r *result.Result) string {
	switch step {
	case StepExamine:
		return unfit(r)
	case StepCheck:
		return v1beta1.ReasonCheckFailed
	case StepSign, StepPull:
		return v1beta1.ReasonSignFailed
	case StepPush, StepPushUnsigned:
		return v1beta1.ReasonPushFailed
	}
	return v1beta1.ReasonBuildFailed
}

// waitingFor is the reason for a pod that does not start.
func waitingFor(reason string) string {
	if reason == v1beta1.ReasonDeliveryRefused {
		return v1beta1.ReasonBuildFailed
	}
	return reason
}

// message is what a failed container says: its result, or what its log ends with.
func message(spec *v1alpha1.ModuleImageSpec, step string, ended *corev1.ContainerStateTerminated, r *result.Result) string {
	text := ended.Message
	switch b := BuilderOf(spec); {
	case step == StepExamine && r != nil && r.Unfit != "":
		return r.Error // of what is in the image, and not of the step
	case r != nil && r.Error != "":
		text = r.Error
	case step == StepBuild && b != nil:
		text = b.Observe(text)
	default:
		text = telling(text, "error")
	}
	if text == "" {
		text = ended.Reason
	}
	return fmt.Sprintf("step %s ended with exit code %d: %s", step, ended.ExitCode, withoutCredentials(text))
}

// credentials in an address, which programs quote when they fail: a log is for fewer eyes than a condition.
var credentials = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^/@\s]+@`)

func withoutCredentials(text string) string { return credentials.ReplaceAllString(text, "${1}…@") }

// Record is the annotation that keeps what a finished Job told.
func Record(t *Told) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encode what a Job told: %w", err)
	}
	return string(text), nil
}

// RetryOf is what a Job for the image has under v1beta1.RetryAnnotation: the newest wish to forget failures, which the Job answers. It is known by
// its value alone, for the clock of the person who asks may differ from the cluster's. Empty: nobody asked.
func RetryOf(spec *v1alpha1.ModuleImageSpec) string {
	if spec.Retry == nil {
		return ""
	}
	return spec.Retry.UTC().Format(time.RFC3339)
}

// FailureLimit is how many Jobs may fail of what an image is made from, until somebody has to change something.
const FailureLimit = 5

// passing reports whether a failure of one of our own steps is the world's, and not a matter of what the step was given. A Secret that is not
// there yet is the world, too: nobody here may look at Secrets and see it come.
func passing(step string, r *result.Result) bool {
	if r == nil {
		return step != StepBuild // killed before it could tell
	}
	switch r.Reason {
	case result.ReasonUnavailable, result.ReasonUnauthorized, result.ReasonTLS, result.ReasonNotFound, result.ReasonPrebuilt:
		return true
	case result.ReasonFailed, "":
		return step == StepCheck || step == StepPush || step == StepPushUnsigned || step == StepPull || step == StepExamine || strings.HasPrefix(step, StepFetch)
	case result.ReasonInvalid, result.ReasonKey:
		return step == StepCheck || step == StepExamine
	case result.ReasonImageRefused, result.ReasonNotModule, result.ReasonNothingToSign, result.ReasonUnfit:
	}
	return false
}

// outages are what programs print, in small letters, when a build fails for something outside it, and what that is.
var outages = []struct {
	says  []string
	means string
}{
	{[]string{"no space left on device", "disk quota exceeded"}, "the node's disk is full"},
	{[]string{"killed signal terminated program", "cannot allocate memory", "out of memory"}, "it needs more memory than its limit"},
	{[]string{"toomanyrequests", "429 too many requests", "too many requests"}, "a server limits how often it is asked"},
	{[]string{"unauthorized: ", "authentication required"}, "a registry does not let the credentials in"},
	{
		[]string{
			"connection refused", "connection reset by peer", "i/o timeout", "tls handshake timeout", "no route to host", "network is unreachable",
			"no such host", "temporary failure in name resolution", "temporary failure resolving", "could not resolve", "connection timed out",
			"502 bad gateway", "503 service unavailable", "504 gateway", "500 internal server error",
		},
		"a server was not reached",
	},
}

// worldOf says what of the world ended a step, as the kubelet or the end of a build's log tells it; "" is nothing that is known.
func worldOf(job *batchv1.Job, pod *corev1.Pod, step string, ended *corev1.ContainerStateTerminated) string {
	switch {
	case ended.Reason == "OOMKilled":
		return "out of memory: step " + step + " needs more than its limit" + limitOf(&job.Spec.Template.Spec, step)
	case pod.Status.Reason != "":
		return strings.TrimSpace(fmt.Sprintf("node %s ended the pod: %s %s", pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message))
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

// limitOf is the memory that a step may use, in brackets. The operator's cache keeps it of Jobs, not of pods.
func limitOf(pod *corev1.PodSpec, step string) string {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && c.Name == step {
			return " (" + limit.String() + ")"
		}
	}
	return ""
}
