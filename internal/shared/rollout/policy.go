// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// confirmation is how long a confirmed deselection counts.
const confirmation = time.Hour

// DeselectGracePeriod is how long a node must lack the selector's labels, its kernel a mapping, or
// the Module a moduleLoader, before the kernel module is unloaded there, by default: labels flap
// when their writer restarts, and edits have slips.
const DeselectGracePeriod = 5 * time.Minute

// Policy says how a Module's changes reach its nodes.
type Policy struct {
	// MaxUnavailable is a number or a percentage.
	MaxUnavailable intstr.IntOrString
	// Soak is how long a changed node must hold the kernel module until it counts as available.
	Soak time.Duration
	// PauseOnFailure, Paused as in the Module.
	PauseOnFailure, Paused bool
	// Trial: the first step is one node.
	Trial bool
	// Confirmed is when it was confirmed that many nodes may be deselected; zero: never.
	Confirmed time.Time
	// Pools are how many more nodes of each pool may become unavailable, with the changes of all other
	// Modules counted; nil: any number.
	Pools map[string]int
}

// Labelled reports whether node labels drive the Module's upgrades, so that nothing here applies.
func Labelled(m *v1beta1.Module) bool {
	return m.Spec.Rollout == nil && m.Spec.ModuleLoader != nil && m.Spec.ModuleLoader.Container.Version != ""
}

// PolicyOf is a Module's policy. Without spec.rollout it only bounds the nodes at a time.
func PolicyOf(m *v1beta1.Module) Policy {
	p := Policy{MaxUnavailable: intstr.FromString("10%"), Confirmed: ConfirmedBy(m)}
	r := m.Spec.Rollout
	if r == nil {
		return p
	}
	if r.MaxUnavailable != nil {
		p.MaxUnavailable = *r.MaxUnavailable
	}
	if r.Soak != nil {
		p.Soak = r.Soak.Duration
	}
	p.Trial, p.Paused = true, r.Paused
	p.PauseOnFailure = r.PauseOnFailure == nil || *r.PauseOnFailure
	return p
}

// ConfirmedBy is when an object's annotation confirmed a mass deselection; zero: it did not.
func ConfirmedBy(o metav1.Object) time.Time {
	at, err := time.Parse(time.RFC3339, o.GetAnnotations()[v1beta1.ConfirmDeselectionAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// Grace is how long a node that is no longer wanted keeps what it has.
func Grace(m *v1beta1.Module) time.Duration {
	if r := m.Spec.Rollout; r != nil && r.DeselectGracePeriod != nil {
		return r.DeselectGracePeriod.Duration
	}
	return DeselectGracePeriod
}

// limit is how many of so many nodes may be unavailable; an invalid value counts as the least.
func (p Policy) limit(total int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&p.MaxUnavailable, total, false)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// confirmed reports whether a deselection of any number of nodes is confirmed.
func (p Policy) confirmed(now time.Time) bool {
	return !p.Confirmed.IsZero() && !now.Before(p.Confirmed) && now.Before(p.Confirmed.Add(confirmation))
}
