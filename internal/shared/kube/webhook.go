// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// failedWebhook is how the API server begins to tell of a webhook that it could not ask.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)

// FailedWebhook is the name of the admission webhook because of which a write was refused, although
// it had no objection: it did not answer. Empty: the error is another one, or none.
func FailedWebhook(err error) string {
	if !apierrors.IsInternalError(err) {
		return ""
	}
	if found := failedWebhook.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return ""
}

// Refused reports whether the API server refuses a write for good: because of rights, admission or
// validation, or a webhook that does not answer. It does not pass by itself.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || FailedWebhook(err) != ""
}
