// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// Report is what programs read.
type Report struct {
	Name    string   `json:"name"`
	Kernel  string   `json:"kernel"`
	Ready   bool     `json:"ready"`
	Reason  string   `json:"reason,omitempty"`
	Message string   `json:"message"`
	Modules []Module `json:"modules"`
}

// Module is how one Module stands.
type Module struct {
	Namespace string                     `json:"namespace"`
	Name      string                     `json:"name"`
	Status    v1beta2.VerificationStatus `json:"status"`
	Image     string                     `json:"image,omitempty"`
	Reason    string                     `json:"reason,omitempty"`
	Message   string                     `json:"message"`
	Next      string                     `json:"next,omitempty"`
}

func reportOf(p *v1beta2.PreflightValidation) Report {
	r := Report{Name: p.Name, Kernel: p.Spec.KernelVersion, Message: standing(p), Modules: []Module{}}
	if c := condition(p); c != nil {
		r.Ready, r.Reason = c.Status == metav1.ConditionTrue, c.Reason
	}
	for _, m := range p.Status.Modules {
		r.Modules = append(r.Modules, Module{
			Namespace: m.Namespace, Name: m.Name, Status: m.VerificationStatus, Image: m.Image, Reason: m.Reason, Message: m.StatusReason,
			Next: reasons.Next(m.Reason),
		})
	}
	return r
}

func (r *Report) render(p paint.Painter) string {
	var b strings.Builder
	b.WriteString(p.Strong(r.Message+".") + "\n")
	if len(r.Modules) > 0 {
		b.WriteString("\n")
	}
	for _, m := range r.Modules {
		text := m.Message
		if m.Reason != "" {
			text = m.Reason + ": " + text
		}
		fmt.Fprintf(&b, "  %s  %s  %s\n", mark(p, m.Status), m.Namespace+"/"+m.Name, text)
		if m.Next != "" {
			fmt.Fprintf(&b, "             Next step: %s\n", m.Next)
		}
	}
	return b.String()
}

func mark(p paint.Painter, s v1beta2.VerificationStatus) string {
	switch s {
	case v1beta2.VerificationSuccess:
		return p.Good("ready    ")
	case v1beta2.VerificationFailure:
		return p.Bad("FAILED   ")
	case v1beta2.VerificationInProgress:
	}
	return p.Slow("unknown  ")
}
