// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/internal/pipeline/result"
)

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
