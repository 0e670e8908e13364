// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Wishes are what annotations ask for, beyond a Module's spec.
type Wishes struct {
	Paused     bool         // nothing may be changed
	SkipChecks bool         // the kernel decides, not the agent
	Retry      *metav1.Time // when somebody last asked to forget failures; nil: nobody did
}

// WishesFor joins those of a Module, which may be nil, and of a node; the newer retry counts.
func WishesFor(m *v1beta1.Module, node *corev1.Node) Wishes {
	w := wishesOf(node)
	if m == nil {
		return w
	}
	of := wishesOf(m)
	w.Paused = w.Paused || of.Paused
	w.SkipChecks = w.SkipChecks || of.SkipChecks
	if of.Retry != nil && (w.Retry == nil || of.Retry.After(w.Retry.Time)) {
		w.Retry = of.Retry
	}
	return w
}

func wishesOf(obj metav1.Object) Wishes {
	all := obj.GetAnnotations()
	_, skip := all[v1beta1.SkipChecksAnnotation]
	w := Wishes{Paused: Paused(obj), SkipChecks: skip}
	if at, err := time.Parse(time.RFC3339, all[v1beta1.RetryAnnotation]); err == nil {
		// As it is read back from the API: in UTC, without fractions of a second.
		w.Retry = &metav1.Time{Time: at.UTC().Truncate(time.Second)}
	}
	return w
}

// RetryAsked is when somebody last asked for a retry by an object's annotation; zero: never.
func RetryAsked(obj metav1.Object) time.Time {
	if at := wishesOf(obj).Retry; at != nil {
		return at.Time
	}
	return time.Time{}
}

// RetryIgnored reports whether an object's request for a retry is not a valid time.
func RetryIgnored(obj metav1.Object) bool {
	_, asks := obj.GetAnnotations()[v1beta1.RetryAnnotation]
	return asks && wishesOf(obj).Retry == nil
}

// SameWishes reports whether the annotations of two objects ask for the same.
func SameWishes(a, b metav1.Object) bool {
	for _, key := range WishAnnotations {
		x, inA := a.GetAnnotations()[key]
		y, inB := b.GetAnnotations()[key]
		if inA != inB || x != y {
			return false
		}
	}
	return true
}

// WishAnnotations are the annotations by which people say what they wish.
var WishAnnotations = []string{
	v1beta1.PausedAnnotation, v1beta1.SkipChecksAnnotation, v1beta1.RetryAnnotation, v1beta1.ConfirmDeselectionAnnotation,
}
