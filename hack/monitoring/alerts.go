// SPDX-License-Identifier: Apache-2.0

// Package monitoring is what Prometheus and Grafana get: alerts for classes of faults that an
// administrator acts on, and a dashboard. rules.yaml and dashboard.json of config/monitoring and
// docs/reference/alerts.md are made of its rows: go test ./hack/monitoring -update.
package monitoring

import (
	"fmt"
	"slices"
	"strings"
)

// Severity says how soon an administrator has to act.
type Severity string

const (
	// SeverityCritical is for now.
	SeverityCritical Severity = "critical"
	// SeverityWarning is for today.
	SeverityWarning Severity = "warning"
	// SeverityInfo is for whoever looks.
	SeverityInfo Severity = "info"
)

// Alert is one class of faults.
type Alert struct {
	Name     string
	Severity Severity
	// Reasons of the closed set that the class has; none: it is about Drover itself.
	Reasons []string
	// Expr is the rule's expression; empty: nodes that fail for the Reasons.
	Expr string
	// For is how long it must have been so, in Prometheus's words.
	For string
	// Summary is one line without a full stop. Text says what is so of the nodes or of Drover, and
	// ends a sentence that begins with them.
	Summary, Text string
	// Next is what to do; empty: what `drover explain` says.
	Next string
	// Unproved is why a fleet of hollow nodes cannot show that it fires; empty: it can.
	Unproved string
}

const (
	usual     = "30s"
	explain   = "drover explain {{ $labels.name }} -n {{ $labels.namespace }}"
	module    = "Module {{ $labels.namespace }}/{{ $labels.name }}"
	pages     = "https://github.com/drover-project/drover/blob/main/docs/reference/"
	failing   = `sum by (namespace, name) (drover_module_failing_nodes{reason=~%q}) > 0`
	component = "drover"
)

// Rows are all alerts.
func Rows() []Alert { return slices.Concat(ofImages, ofLoads, ofChanges, ofDrover) }

// Expression is what Prometheus evaluates.
func (a *Alert) Expression() string {
	if a.Expr != "" {
		return a.Expr
	}
	return fmt.Sprintf(failing, strings.Join(a.Reasons, "|"))
}

// OfModule tells whether each alert is about one Module.
func (a *Alert) OfModule() bool { return len(a.Reasons) > 0 }

// Description is the annotation, with Prometheus's templates.
func (a *Alert) Description() string {
	if !a.OfModule() {
		return a.Text + ". Next: " + a.Next
	}
	next := "`" + explain + "` names the nodes, the cause and the next step"
	if a.Next != "" {
		next += "; " + a.Next
	}
	return module + ", nodes: {{ $value }}. " + a.Text + ". Next: " + next
}

// Runbook is the address of the alert's section of the page.
func (a *Alert) Runbook() string { return pages + "alerts.md#" + strings.ToLower(a.Name) }

// Rule is one rule of Prometheus.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Rule gives the alert as Prometheus reads it.
func (a *Alert) Rule() Rule {
	return Rule{
		Alert: a.Name, Expr: a.Expression(), For: a.For,
		Labels:      map[string]string{"severity": string(a.Severity), "component": component},
		Annotations: map[string]string{"summary": a.Summary, "description": a.Description(), "runbook_url": a.Runbook()},
	}
}

// Group is a group of rules; a file of rules has the field groups.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Groups are all rules, as in a file of rules and in the spec of a PrometheusRule.
type Groups struct {
	Groups []Group `json:"groups"`
}

// Rules are those of all alerts.
func Rules() Groups {
	group := Group{Name: component}
	for _, a := range Rows() {
		group.Rules = append(group.Rules, a.Rule())
	}
	return Groups{Groups: []Group{group}}
}
