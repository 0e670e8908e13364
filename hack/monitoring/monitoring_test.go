// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root, folder = "../../", "../../config/monitoring/"

var update = flag.Bool("update", false, "write rules.yaml, dashboard.json and docs/reference/alerts.md")

// TestMadeOfTheRows: what is installed and what is read are the rows.
func TestMadeOfTheRows(t *testing.T) {
	dashboard, err := json.MarshalIndent(Dashboard(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		folder + "rules.yaml": rules(t), folder + "dashboard.json": string(dashboard) + "\n", root + "docs/reference/alerts.md": page(t),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(read(t, path), want); diff != "" {
			t.Errorf("%s (-) is not made of the rows (+): go test ./hack/monitoring -update\n%s", path, diff)
		}
	}
}

func rules(t *testing.T) string {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "drover-operator", "app.kubernetes.io/part-of": component}
	content, err := yaml.Marshal(object{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": Rules(),
		"metadata": object{"name": component, "namespace": "drover-system", "labels": labels},
	})
	if err != nil {
		t.Fatal(err)
	}
	return "# Made of the rows in hack/monitoring: go test ./hack/monitoring -update\n" + string(content)
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// reason is a row of docs/reference/reasons.md, which is made of internal/shared/reasons.
type reason struct {
	attention     bool
	meaning, next string
}

func reasonsOf(t *testing.T) map[string]reason {
	t.Helper()
	well, attention, ok := strings.Cut(read(t, root+"docs/reference/reasons.md"), "\n## Needs attention\n")
	if !ok {
		t.Fatal("docs/reference/reasons.md has no section Needs attention")
	}
	all := map[string]reason{}
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|(?: (?:yes|no) \\|)? (.+?) \\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(well, -1) {
		all[m[1]] = reason{meaning: m[2], next: m[3]}
	}
	for _, m := range row.FindAllStringSubmatch(attention, -1) {
		all[m[1]] = reason{attention: true, meaning: m[2], next: m[3]}
	}
	return all
}

// TestEveryFaultHasOneClass: a reason that needs attention is in exactly one class, or without an
// alert for a reason that is written down.
func TestEveryFaultHasOneClass(t *testing.T) {
	known, places := reasonsOf(t), map[string][]string{}
	for name, why := range Silent {
		places[name] = append(places[name], "Silent")
		if why == "" {
			t.Errorf("%s is without an alert, and nothing says why", name)
		}
	}
	for _, a := range Rows() {
		for _, r := range a.Reasons {
			places[r] = append(places[r], a.Name)
		}
	}
	attention := 0
	for name, r := range known {
		if r.attention {
			attention++
		}
		if n := len(places[name]); n > 1 || r.attention && n == 0 {
			t.Errorf("%s is in %d places: %q", name, n, places[name])
		}
	}
	for name := range places {
		if _, ok := known[name]; !ok {
			t.Errorf("%s is no reason", name)
		}
	}
	if attention < 40 {
		t.Errorf("docs/reference/reasons.md has %d reasons that need attention: it was not read well", attention)
	}
}

// TestAlertsAreWhole: names, words, links, and no alert that comes later than promised.
func TestAlertsAreWhole(t *testing.T) {
	seen, proved := map[string]bool{}, 0
	for _, a := range Rows() {
		wait, err := time.ParseDuration(a.For)
		switch {
		case err != nil:
			t.Errorf("%s: %v", a.Name, err)
		case a.Unproved == "" && wait > 45*time.Second:
			t.Errorf("%s waits for %s: nobody would know within a minute", a.Name, wait)
		}
		if a.Unproved == "" {
			proved++
		}
		if seen[a.Name] || !regexp.MustCompile(`^Drover[A-Z][A-Za-z]+$`).MatchString(a.Name) {
			t.Errorf("%q is no name, or there twice", a.Name)
		}
		seen[a.Name] = true
		if !slices.Contains([]Severity{SeverityCritical, SeverityWarning, SeverityInfo}, a.Severity) {
			t.Errorf("%s has the severity %q", a.Name, a.Severity)
		}
		for what, text := range map[string]string{"summary": a.Summary, "text": a.Text} {
			if text == "" || strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s is %q", a.Name, what, text)
			}
		}
		words := []string{"{{ $labels.namespace }}/{{ $labels.name }}", "{{ $value }}", "drover explain {{ $labels.name }}"}
		if !a.OfModule() {
			words = []string{"kubectl"}
			if a.Name == "DroverWritesRefused" {
				words = []string{"config/rbac", "{{ $value"}
			}
		}
		for _, word := range words {
			if !strings.Contains(a.Description(), word) {
				t.Errorf("%s does not name %s: %s", a.Name, word, a.Description())
			}
		}
		if heading := "\n### " + a.Name + "\n"; !strings.Contains(page(t), heading) {
			t.Errorf("the page has no heading for %s", a.Runbook())
		}
	}
	if proved < 12 {
		t.Errorf("%d classes are proved, want 12 or more", proved)
	}
}

// metric finds names of metrics in an expression.
var metric = regexp.MustCompile(`\b(?:drover|kmm|rest_client|controller_runtime|workqueue|process)_[a-z_]+`)

// TestOnlyMetricsThatThereAre: rules and panels ask for metrics of docs/reference/metrics.md, or of
// controller-runtime.
func TestOnlyMetricsThatThereAre(t *testing.T) {
	table := read(t, root+"docs/reference/metrics.md")
	foreign := []string{
		"rest_client_requests_total", "controller_runtime_reconcile_errors_total", "workqueue_depth", "process_resident_memory_bytes",
	}
	exprs := map[string]string{}
	for _, a := range Rows() {
		exprs[a.Name] = a.Expression()
	}
	for _, p := range Panels() {
		exprs[p.Title] = p.Expr
	}
	for what, expr := range exprs {
		names := metric.FindAllString(expr, -1)
		if len(names) == 0 && what != "Alerts" {
			t.Errorf("%s asks for no metric: %s", what, expr)
		}
		for _, name := range names {
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_bucket")
			if !strings.Contains(table, "| `"+base+"` |") && !slices.Contains(foreign, name) {
				t.Errorf("%s asks for %s, which nobody serves", what, name)
			}
		}
	}
}

// TestComponent: with config/default, it adds what it says and changes nothing else.
func TestComponent(t *testing.T) {
	dir, err := os.MkdirTemp(root+"config", "rendered-") // kustomize takes relative paths only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	render := func(kustomization string) map[string]string {
		if err := os.WriteFile(dir+"/kustomization.yaml", []byte(kustomization), 0o644); err != nil {
			t.Fatal(err)
		}
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for _, o := range objects.Resources() {
			texts[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.MustYaml()
		}
		return texts
	}
	before, after := render("resources: [../default]\n"), render("resources: [../default]\ncomponents: [../monitoring]\n")
	for name, text := range before {
		if diff := cmp.Diff(text, after[name]); diff != "" {
			t.Errorf("%s is changed:\n%s", name, diff)
		}
	}
	maps.DeleteFunc(after, func(name, _ string) bool { return before[name] != "" })
	if diff := cmp.Diff([]string{
		"ConfigMap drover-system/drover-dashboard", "PrometheusRule drover-system/drover", "Service drover-system/drover-operator-metrics",
		"ServiceMonitor drover-system/drover-operator",
	}, slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := after["ConfigMap drover-system/drover-dashboard"]; !strings.Contains(text, `grafana_dashboard: "1"`) {
		t.Errorf("Grafana does not find the dashboard: %.300s", text)
	}
	// What the Service and the ServiceMonitor choose is there.
	operator := before["Deployment drover-system/drover-operator"]
	for _, part := range []string{"app.kubernetes.io/name: drover-operator", "name: metrics"} {
		if !strings.Contains(operator, part) {
			t.Errorf("the operator's Deployment has no %s", part)
		}
	}
}
