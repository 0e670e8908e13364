// SPDX-License-Identifier: Apache-2.0

package kube

import (
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
	events events.EventRecorder
}

// NewRecorder wraps a recorder, such as a manager's.
func NewRecorder(recorder events.EventRecorder) Recorder { return Recorder{events: recorder} }

// Changed emits one event for each condition of after whose status or reason differs from before. The event's reason is
// the condition's, its note the condition's message. Conditions must have positive polarity: False is a Warning.
// A condition that is new and not False says nothing that its object's creation has not said.
func (r Recorder) Changed(object runtime.Object, before, after []metav1.Condition) {
	if r.events == nil {
		return
	}
	for i := range after {
		now := &after[i]
		old := meta.FindStatusCondition(before, now.Type)
		switch {
		case old == nil && now.Status != metav1.ConditionFalse:
			continue
		case old != nil && old.Status == now.Status && old.Reason == now.Reason:
			continue
		}
		kind := corev1.EventTypeNormal
		if now.Status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}
		r.events.Eventf(object, nil, kind, now.Reason, now.Type, "%s", note(now.Message))
	}
}

// Warn emits one event about an object that is going, so that no condition of it can tell.
func (r Recorder) Warn(object runtime.Object, reason, action, message string) {
	if r.events == nil {
		return
	}
	r.events.Eventf(object, nil, corev1.EventTypeWarning, reason, action, "%s", note(message))
}

// note cuts a message to what an event holds, between characters. The condition has the whole of it.
func note(message string) string {
	if len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote-len(ellipsis)], "") + ellipsis
}
