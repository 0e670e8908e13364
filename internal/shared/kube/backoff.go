// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	firstBackoff = 50 * time.Millisecond
	longBackoff  = time.Minute
)

// Backoff is the pause of a controller after a pass of an object that failed: 50 ms, then twice as
// long each time, up to a minute. The library's own ends at 17 minutes. An object whose write was
// refused for a while, by a webhook for example, would wait for that: nothing else wakes it.
func Backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, longBackoff)
}
