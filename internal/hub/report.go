// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

// Bounds of what is believed of a cluster's report.
const (
	maxMessage  = 512
	maxRevision = 64
	maxNodes    = 100_000
)

// Report is what a cluster reports of its Module. It is bounded, and concerns that cluster alone.
type Report struct {
	// Revision of the Module there; empty: none, or not known.
	Revision string
	// Applied: the cluster has what the hub sent last. Refused is why it could not be applied.
	Applied bool
	Refused string
	// Current: the cluster's operator has looked at this revision.
	Current bool
	// Ready is the Module's condition there.
	Ready           metav1.ConditionStatus
	Reason, Message string
	// Desired and Available count nodes.
	Desired, Available int32
}

// ReadyWith reports whether the Module is Ready there with a revision.
func (r *Report) ReadyWith(revision string) bool {
	return r.Applied && r.Current && r.Revision == revision && r.Ready == metav1.ConditionTrue
}

// FailedWith is why a revision will not become Ready there by itself; empty: it may.
func (r *Report) FailedWith(revision string) string {
	switch {
	case r.Refused != "":
		return v1beta1.ReasonDeliveryRefused
	case r.Revision != revision || !r.Current || r.Ready == metav1.ConditionTrue || r.Reason == "" || reasons.Patience(r.Reason):
		return ""
	}
	return r.Reason
}

// ReportOf reads a cluster's Module.
func ReportOf(m *v1beta1.Module) Report {
	r := Report{
		Revision: m.Annotations[RevisionAnnotation], Applied: true, Current: m.Status.ObservedGeneration == m.Generation,
		Desired: m.Status.ModuleLoader.DesiredNumber, Available: m.Status.ModuleLoader.AvailableNumber,
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); c != nil {
		r.Ready, r.Reason, r.Message = c.Status, c.Reason, c.Message
	}
	r.bound()
	return r
}

// Refuse notes why a cluster refused what it was sent.
func (r *Report) Refuse(why string) {
	r.Refused = why
	r.bound()
}

func (r *Report) bound() {
	r.Desired, r.Available = min(max(r.Desired, 0), maxNodes), min(max(r.Available, 0), maxNodes)
	if !reasons.Known(r.Reason) {
		r.Reason = ""
	}
	r.Message, r.Refused = cut(r.Message), cut(r.Refused)
	if len(r.Revision) > maxRevision {
		r.Revision = ""
	}
}

// cut makes a text one short line without characters that steer a terminal.
func cut(text string) string { return words.Cut(words.Line(text), maxMessage) }
