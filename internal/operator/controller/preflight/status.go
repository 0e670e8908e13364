// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/words"
)

// named is how many Modules a condition names; the rest is counted.
const named = 5

// statusOf is the status of all findings. Of the status before, only times count.
func statusOf(p *v1beta2.PreflightValidation, found []finding, now time.Time) *v1beta2.PreflightValidationStatus {
	now = now.Truncate(time.Second)
	s := &v1beta2.PreflightValidationStatus{ObservedGeneration: p.Generation}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.module.String(), b.module.String()) })
	for i := range found {
		f := &found[i]
		one := v1beta2.CRStatus{
			VerificationStatus: f.status, StatusReason: f.message, VerificationStage: v1beta2.StageDone, LastTransitionTime: metav1.NewTime(now),
		}
		if f.status == v1beta2.VerificationInProgress {
			one.VerificationStage = v1beta2.StageImage
		}
		for _, before := range p.Status.Modules {
			if before.Namespace == f.module.Namespace && before.Name == f.module.Name && before.VerificationStatus == f.status {
				one.LastTransitionTime = before.LastTransitionTime
			}
		}
		s.Modules = append(s.Modules, v1beta2.PreflightValidationModuleStatus{
			CRStatus: one, Namespace: f.module.Namespace, Name: f.module.Name, Reason: f.reason, Image: f.image,
		})
		if s.CRStatuses == nil {
			s.CRStatuses = map[string]v1beta2.CRStatus{}
		}
		s.CRStatuses[f.module.String()] = one
		// Clients of v1beta1 also look up Modules by name alone: the worst of that name counts.
		if other, ok := s.CRStatuses[f.module.Name]; !ok || rank(one.VerificationStatus) > rank(other.VerificationStatus) {
			s.CRStatuses[f.module.Name] = one
		}
	}
	c := ready(p, found)
	c.Type, c.ObservedGeneration, c.LastTransitionTime = v1beta1.ConditionReady, p.Generation, metav1.NewTime(now)
	if before := meta.FindStatusCondition(p.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	s.Conditions = []metav1.Condition{c}
	return s
}

// ready sums up. A failure counts at once, whether or not other Modules are still being checked.
func ready(p *v1beta2.PreflightValidation, found []finding) metav1.Condition {
	of := map[v1beta2.VerificationStatus][]string{}
	for i := range found {
		f := &found[i]
		text := f.module.String()
		if f.reason != "" {
			text += " (" + f.reason + ")"
		}
		of[f.status] = append(of[f.status], text)
	}
	version := kernel.Trim(p.Spec.KernelVersion)
	failed, busy := of[v1beta2.VerificationFailure], of[v1beta2.VerificationInProgress]
	c := metav1.Condition{Status: metav1.ConditionFalse}
	switch {
	case len(failed) > 0:
		c.Reason = v1beta1.ReasonPreflightFailed
		c.Message = fmt.Sprintf("%d of %d Modules are not ready for kernel %s: %s", len(failed), len(found), version, words.List(failed, named))
		if len(busy) > 0 {
			c.Message += fmt.Sprintf("; %d still being checked", len(busy))
		}
	case len(busy) > 0:
		c.Reason = v1beta1.ReasonPreflightRunning
		c.Message = fmt.Sprintf("%d of %d Modules are still being checked for kernel %s: %s", len(busy), len(found), version,
			words.List(busy, named))
	case len(found) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonKernelReady, "No Module selects a node with these labels"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1beta1.ReasonKernelReady
		c.Message = fmt.Sprintf("All %d Modules are ready for kernel %s", len(found), version)
	}
	return c
}
