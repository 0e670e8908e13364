// SPDX-License-Identifier: Apache-2.0

package ooto

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
)

type problem struct {
	reason  string
	message string
}

// statusOf is what was seen. child is the KMM Module, if it has what is asked for. The status
// before only gives the transition times.
func statusOf(m *v1alpha1.Module, child *v1beta1.Module, ignored []string, p *problem, now time.Time) *v1alpha1.ModuleStatus {
	s := &v1alpha1.ModuleStatus{ObservedGeneration: m.Generation, DriverContainer: &v1alpha1.NodeCounts{}}
	if m.Spec.DevicePlugin != nil {
		s.DevicePlugin = &v1alpha1.NodeCounts{}
	}
	if child != nil {
		*s.DriverContainer = counts(child.Status.ModuleLoader)
		if s.DevicePlugin != nil {
			*s.DevicePlugin = counts(child.Status.DevicePlugin)
		}
	}
	s.Conditions = []metav1.Condition{ready(child, p), translated(m, p), allUsed(ignored)}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = m.Generation, metav1.NewTime(now.Truncate(time.Second))
		if before := meta.FindStatusCondition(m.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return s
}

func counts(s v1beta1.DaemonSetStatus) v1alpha1.NodeCounts {
	return v1alpha1.NodeCounts{DesiredNumberScheduled: s.DesiredNumber, NumberReady: s.AvailableNumber, NumberAvailable: s.AvailableNumber}
}

// ready is the KMM Module's condition, once that is about what is asked for now.
func ready(child *v1beta1.Module, p *problem) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoStatus}
	switch {
	case p != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.reason, p.message
		return c
	case child == nil || child.Status.ObservedGeneration != child.Generation:
	default:
		if of := meta.FindStatusCondition(child.Status.Conditions, v1beta1.ConditionReady); of != nil {
			c.Status, c.Reason, c.Message = of.Status, of.Reason, of.Message
			return c
		}
	}
	c.Message = "The operator has not processed the Module of " + v1beta1.GroupVersion.Group + " yet"
	return c
}

func translated(m *v1alpha1.Module, p *problem) metav1.Condition {
	if p != nil {
		return metav1.Condition{Type: v1alpha1.ConditionTranslated, Status: metav1.ConditionFalse, Reason: p.reason, Message: p.message}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionTranslated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTranslated,
		Message: fmt.Sprintf("The Module %s of %s matches this one", m.Name, v1beta1.GroupVersion.Group),
	}
}

func allUsed(ignored []string) metav1.Condition {
	if len(ignored) > 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionAllFieldsUsed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFieldIgnored,
			Message: "There is no driver pod, so Drover ignores " + strings.Join(ignored, ", "),
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionAllFieldsUsed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllFieldsUsed,
		Message: "Drover uses every field that is set",
	}
}
