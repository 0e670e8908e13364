// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/internal/shared/kube"
)

// Types of conditions.
const (
	// ConditionReady is True when the children are as desired and do their work.
	ConditionReady = "Ready"
	// ConditionErrored is True when a person has to act.
	ConditionErrored = "Errored"
)

// Reasons of conditions that the kit itself gives.
const (
	// ReasonReconciled: ready.
	ReasonReconciled = "Reconciled"
	// ReasonNoError is the reason of Errored=False.
	ReasonNoError = "NoError"
	// ReasonProgressing: on its way.
	ReasonProgressing = "Progressing"
	// ReasonNameConflict: a child's name belongs to another object. Rename or delete one of them.
	ReasonNameConflict = "NameConflict"
	// ReasonForbidden: the operator lacks a right. Give it to its role.
	ReasonForbidden = "Forbidden"
	// ReasonRefused: the API server refuses a child. Its message says why.
	ReasonRefused = "Refused"
	// ReasonTerminating: a child is being deleted, and is created again when it is gone.
	ReasonTerminating = "Terminating"
	// ReasonDeleting: the object is being deleted and waits for its children.
	ReasonDeleting = "Deleting"
	// ReasonReconcileFailed: something else failed, and is tried again.
	ReasonReconcileFailed = "ReconcileFailed"
	// ReasonCRDIncompatible: a CustomResourceDefinition lacks a field. Install the current one.
	ReasonCRDIncompatible = "CRDIncompatible"
	// ReasonCRDMissing: the API server does not know a kind. Install its CustomResourceDefinition.
	ReasonCRDMissing = "CRDMissing"
)

// retryAfter is when something is looked at again that no watch reports.
const retryAfter = 15 * time.Second

// Problem is an error that ends as a condition: Ready is False with its reason, a word in CamelCase
// for programs, and its message, which tells people what to do.
type Problem struct {
	Reason, Message string
	// Errored: a person has to act. Otherwise the problem passes by itself.
	Errored bool
	// RetryAfter is when to look again; zero: when something watched changes.
	RetryAfter time.Duration

	cause error
}

// Error implements error.
func (p *Problem) Error() string { return p.Reason + ": " + p.Message }

// Unwrap returns the error that the problem was made of, or nil.
func (p *Problem) Unwrap() error { return p.cause }

// Waiting is a problem that passes by itself.
func Waiting(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Refused is a problem that a person has to solve. Nothing happens until something watched changes.
func Refused(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...), Errored: true}
}

// ProblemOf is how an error ends as a condition; nil if it only says that what was read is
// outdated. Errors of the API server have reasons that tell what to do; others are a
// ReconcileFailed.
func ProblemOf(err error) *Problem {
	var p *Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case kube.Outdated(err) && !unserved(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	p = &Problem{Reason: ReasonReconcileFailed, Message: err.Error(), Errored: true, cause: err}
	switch {
	case unserved(err):
		p.Reason, p.RetryAfter = ReasonCRDMissing, retryAfter
		p.Message += ": install its CustomResourceDefinition (make install)"
	case apierrors.IsForbidden(err):
		p.Reason, p.RetryAfter = ReasonForbidden, retryAfter
	case strings.Contains(err.Error(), undeclared):
		p.Reason, p.RetryAfter = ReasonCRDIncompatible, retryAfter
		p.Message += ": its CustomResourceDefinition is older than this operator; install the current one (make install)"
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		p.Reason, p.RetryAfter = ReasonRefused, retryAfter
	}
	return p
}

// unserved tells whether the API server does not know the kind. For one that it knew before, its
// answer is like that for a missing object, but not in the API's form.
func unserved(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// undeclared is the API server's answer to a field that the schema lacks. It has no reason for it.
const undeclared = "field not declared in schema"
