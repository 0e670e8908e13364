// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
)

const (
	// SealPolicy is the name of the ValidatingAdmissionPolicy, and of its binding, that seals
	// carrier pods. Without it, anybody who may change pods could put code into a kernel.
	SealPolicy = "drover-carriers"
	// statusPolicy keeps each agent to its own node's status, so that none reports for others.
	statusPolicy = "drover-agent-status"
	// statusPolicyRest is how long the second counts as seen: the cache has but the first.
	statusPolicyRest = time.Minute
)

// unsealed says which policy, or binding, is missing or does not deny, or nil.
func (c *Controller) unsealed(ctx context.Context) (*reasons.Problem, error) {
	if problem, err := lacks(ctx, c.client, SealPolicy); problem != nil || err != nil {
		return problem, err
	}
	if seen := c.reports.Load(); seen != nil && c.options.Clock.Since(*seen) < statusPolicyRest {
		return nil, nil
	}
	problem, err := lacks(ctx, c.live, statusPolicy)
	if problem == nil && err == nil {
		c.reports.Store(ptr.To(c.options.Clock.Now()))
	}
	return problem, err
}

// lacks says what a policy lacks, or nil.
func lacks(ctx context.Context, r client.Reader, name string) (*reasons.Problem, error) {
	refused := func(what string) *reasons.Problem {
		return &reasons.Problem{Reason: v1beta1.ReasonDeliveryRefused, Message: "nothing is delivered: " + what + ": apply config/policies"}
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, policy); apierrors.IsNotFound(err) {
		return refused("the admission policy " + name + " is missing"), nil
	} else if err != nil {
		return nil, fmt.Errorf("get the admission policy %s: %w", name, err)
	}
	// Unset means Fail.
	if fail := policy.Spec.FailurePolicy; policy.DeletionTimestamp != nil || fail != nil && *fail != admissionv1.Fail {
		return refused("the admission policy " + name + " does not have failurePolicy Fail"), nil
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, binding); apierrors.IsNotFound(err) {
		return refused("the binding of the admission policy " + name + " is missing"), nil
	} else if err != nil {
		return nil, fmt.Errorf("get the binding of the admission policy %s: %w", name, err)
	}
	if binding.DeletionTimestamp != nil || binding.Spec.PolicyName != name || binding.Spec.MatchResources != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return refused("the binding of the admission policy " + name + " does not deny everywhere"), nil
	}
	return nil, nil
}
