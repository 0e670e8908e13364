// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

const (
	// maxNote is how much of a message an event repeats, in bytes. The API server refuses more than 1024.
	maxNote  = 1000
	ellipsis = "…"
)

// Recorder emits an event when a condition has changed, and for what no condition can tell any more: an event per try would be
// a write per try. The zero value emits nothing.
type Recorder struct {
	events   events.EventRecorder
	expected func(reason string) bool
}

// NewRecorder wraps a recorder, such as a manager's.
func NewRecorder(recorder events.EventRecorder) Recorder { return Recorder{events: recorder} }

// Expecting makes the event of a condition that is False for an expected reason a Normal one: an install that goes as it should warns nobody.
func (r Recorder) Expecting(expected func(reason string) bool) Recorder {
	r.expected = expected
	return r
}

// Changed emits one event for each condition of after whose status or reason differs from before. The event's reason is
// the condition's, its action the condition's type, its note the condition's message. Conditions must have positive
// polarity: False is a Warning, unless its reason is expected ([Recorder.Expecting]). A condition that is new and not False says nothing that its object's creation has not said.
//
// Conditions that sum up others come first. One that says the same as a later one, which knows it first-hand, has no event
// of its own: what happened once is told once.
func (r Recorder) Changed(object runtime.Object, before, after []metav1.Condition) {
	if r.events == nil {
		return
	}
	var tell []metav1.Condition
	for i := range after {
		if changed(before, &after[i]) {
			said := func(c metav1.Condition) bool { return c.Status == after[i].Status && c.Reason == after[i].Reason }
			tell = append(slices.DeleteFunc(tell, said), after[i])
		}
	}
	for i := range tell {
		kind := corev1.EventTypeNormal
		if tell[i].Status == metav1.ConditionFalse && (r.expected == nil || !r.expected(tell[i].Reason)) {
			kind = corev1.EventTypeWarning
		}
		r.events.Eventf(object, nil, kind, tell[i].Reason, tell[i].Type, "%s", Note(tell[i].Message))
	}
}

// Warn emits one event about an object that is going, so that no condition of it can tell.
func (r Recorder) Warn(object runtime.Object, reason, action, message string) {
	if r.events == nil {
		return
	}
	r.events.Eventf(object, nil, corev1.EventTypeWarning, reason, action, "%s", Note(message))
}

func changed(before []metav1.Condition, now *metav1.Condition) bool {
	old := meta.FindStatusCondition(before, now.Type)
	if old == nil {
		return now.Status == metav1.ConditionFalse
	}
	return old.Status != now.Status || old.Reason != now.Reason
}

// Note cuts a message to what an event holds, between characters. The condition has the whole of it.
func Note(message string) string {
	if len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote-len(ellipsis)], "") + ellipsis
}
