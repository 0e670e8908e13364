// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
)

const (
	// SealPolicy is the name of the ValidatingAdmissionPolicy, and of its binding, that seals carrier pods. Without it, anybody who may change
	// pods could put code into a kernel.
	SealPolicy = "drover-carriers"
	// statusPolicy is the one that keeps each agent to its own node's status. Without it, one node could report for all.
	statusPolicy = "drover-agent-status"
	// statusPolicyRest is how long the second counts as seen. It is asked for by name, past the cache, which holds one name of a kind.
	statusPolicyRest = time.Minute
)

// glance is when something was last seen to be right. The zero value has seen nothing.
type glance struct {
	mu   sync.Mutex
	seen time.Time
}

// fresh reports whether that is recent.
func (g *glance) fresh(clock clock.PassiveClock) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.seen.IsZero() && clock.Since(g.seen) < statusPolicyRest
}

func (g *glance) note(clock clock.PassiveClock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = clock.Now()
}

// unsealed says why nothing may be delivered: a policy, or its binding, that is not there or does not deny.
func (c *Controller) unsealed(ctx context.Context) (*reasons.Problem, error) {
	if problem, err := lacks(ctx, c.client, SealPolicy); problem != nil || err != nil {
		return problem, err
	}
	if c.reports.fresh(c.options.Clock) {
		return nil, nil
	}
	problem, err := lacks(ctx, c.live, statusPolicy)
	if problem == nil && err == nil {
		c.reports.note(c.options.Clock)
	}
	return problem, err
}

// lacks says what a policy of a name lacks in order to hold.
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
