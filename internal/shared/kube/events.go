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

	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// maxNote is how much of a message an event repeats, in bytes; the API server takes up to 1024.
	maxNote  = 1000
	ellipsis = "…"
)

// Recorder emits an event when a condition has changed, and for what no condition can show any
// longer, never per try. The zero value emits nothing.
type Recorder struct {
	events   events.EventRecorder
	expected func(reason string) bool
}

// NewRecorder wraps a recorder, such as a manager's.
func NewRecorder(recorder events.EventRecorder) Recorder { return Recorder{events: recorder} }

// Expecting makes a False condition with an expected reason a Normal event instead of a Warning.
func (r Recorder) Expecting(expected func(reason string) bool) Recorder {
	r.expected = expected
	return r
}

// Changed emits one event for each condition of after whose status or reason differs from before:
// with the condition's reason, its type as the action, and its message as the note. False is a
// Warning unless [Recorder.Expecting] knows the reason; a new condition that is not False has no
// event.
//
// Conditions that sum up others come first, and have no event if a later one says the same.
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

// Warn emits one event about an object that is going, which no condition of it can show.
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

// Note is a message, cleaned, cut to what an event holds.
func Note(message string) string {
	message = words.Clean(message)
	if len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote-len(ellipsis)], "") + ellipsis
}
