// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

// TestWhatAJobWaitsFor: a pod that nobody admits or no node takes is told of while the Job waits,
// not when its time is over.
func TestWhatAJobWaitsFor(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	began := metav1.Now()
	pending := func(conditions ...corev1.PodCondition) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: conditions}}
	}
	for name, tc := range map[string]struct {
		job  batchv1.JobStatus
		pod  *corev1.Pod
		says string
	}{
		"just made":       {},
		"no pod":          {job: batchv1.JobStatus{StartTime: &began}, says: "admits no pod"},
		"the pod's event": {job: batchv1.JobStatus{StartTime: &began, Active: 1}},
		"no node": {job: batchv1.JobStatus{StartTime: &began, Active: 1}, pod: pending(corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/9 nodes are available",
		}), says: "no node takes its pod"},
		"on its way": {job: batchv1.JobStatus{StartTime: &began, Active: 1},
			pod: pending(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})},
		"suspended": {job: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := pipeline.Job(img, 1, "New", options())
			j.Status = tc.job
			var pods []corev1.Pod
			if tc.pod != nil {
				tc.pod.Labels = map[string]string{batchv1.JobNameLabel: j.Name}
				pods = append(pods, *tc.pod)
			}
			r := pipeline.Runs(&img.Spec, []batchv1.Job{*j}, pods)[0]
			if !strings.Contains(r.Outcome.Message, tc.says) || (tc.says == "") != (r.Outcome.Reason == "") ||
				strings.Contains(r.Outcome.Message, "0/9") {
				t.Errorf("told is %+v", r.Outcome)
			}
		})
	}
}

// TestTheEndOfAPodMayComeLater than that of its Job.
func TestTheEndOfAPodMayComeLater(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	j := pipeline.Job(img, 1, "New", options())
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	for phase, unseen := range map[corev1.PodPhase]bool{corev1.PodRunning: true, corev1.PodSucceeded: false, corev1.PodFailed: false} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: j.Name}},
			Status: corev1.PodStatus{Phase: phase}}
		if r := pipeline.Runs(&img.Spec, []batchv1.Job{*j}, []corev1.Pod{pod})[0]; r.Unseen != unseen {
			t.Errorf("with the pod %s, unseen is %t", phase, r.Unseen)
		}
	}
}

// TestConditionsQuoteNoCredentials: git and others quote addresses when they fail.
func TestConditionsQuoteNoCredentials(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	j := pipeline.Job(img, 1, "New", options())
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: j.Name}}, Status: corev1.PodStatus{
		Phase: corev1.PodFailed, InitContainerStatuses: []corev1.ContainerStatus{{Name: "build",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 128, Message: "fatal: unable to access 'https://bot:t0ken@git.example/a.git/': 403\nerror: https://t0ken@git.example/b@c.git",
			}}}},
	}}
	told := pipeline.Runs(&img.Spec, []batchv1.Job{*j}, []corev1.Pod{pod})[0].Outcome
	if told.Reason != v1beta1.ReasonBuildFailed || strings.Contains(told.Message, "t0ken") ||
		!strings.Contains(told.Message, "https://…@git.example/b@c.git") {
		t.Errorf("%+v", told)
	}
}

// TestSettingsAreAllButWhatAJobIsFor: what a mended Module changes in the pod makes other settings,
// also where the image stays the same.
func TestSettingsAreAllButWhatAJobIsFor(t *testing.T) {
	settings := func(o *pipeline.Options, change ...func(*v1beta1.Module)) string {
		return pipeline.Settings(image(t, module(change...), configMap("FROM a"), "b@1"), o)
	}
	base := settings(options())
	if settings(options()) != base {
		t.Error("the same settings differ")
	}
	newer := options()
	newer.SignerImage = "registry.invalid/drover/drover-signer:newer"
	for what, got := range map[string]string{
		"a pull secret": settings(options(), func(m *v1beta1.Module) { m.Spec.ImageRepoSecret = ref("other") }),
		"TLS":           settings(options(), func(m *v1beta1.Module) { container(m).RegistryTLS.Insecure = true }),
		"tolerations":   settings(options(), func(m *v1beta1.Module) { m.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }),
		"the nodes":     settings(options(), func(m *v1beta1.Module) { container(m).Build.Selector = map[string]string{"a": "b"} }),
		"the steps":     settings(newer),
	} {
		if got == base {
			t.Errorf("%s makes no difference", what)
		}
	}
}
