// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// byModules are the admission policies of config/policies that look up Modules. The API server
// learns of those by a watch of its own, about when the operator does.
var byModules = regexp.MustCompile(`ValidatingAdmissionPolicy 'drover-(namespaces|daemonsets)-of-modules'`)

// knownWithin is how long a Module may take to get to these policies: 1.3 seconds in all.
var knownWithin = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Steps: 7}

// Known writes what is made for a Module, and again as long as the API server's admission policies
// know the Module as it was. Of a refusal that lasts it returns the last.
func Known(ctx context.Context, write func() error) error {
	var refused error
	err := wait.ExponentialBackoffWithContext(ctx, knownWithin, func(context.Context) (bool, error) {
		err := write()
		if outdated(err) {
			refused = err
			return false, nil
		}
		refused = nil
		return true, err
	})
	if refused != nil {
		return refused
	}
	return err //nolint:wrapcheck // it is write's own
}

// outdated reports whether a policy that looks up Modules has refused a write. The operator makes
// only what they admit, so that it is the policy that lags.
func outdated(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && byModules.MatchString(err.Error())
}
