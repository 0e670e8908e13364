// SPDX-License-Identifier: Apache-2.0

package monitoring

// Panel is one of the dashboard's.
type Panel struct {
	Title string
	// Kind is Grafana's: stat, timeseries or table.
	Kind   string
	Expr   string
	Legend string
	// Unit is Grafana's; empty: a plain number.
	Unit string
	// Empty is why there may be nothing to show in a fleet with faults; empty: there is.
	Empty string
}

// Grafana's grid has 24 columns.
const (
	gridColumns   = 24
	statWidth     = 6
	graphWidth    = 12
	statHeight    = 4
	graphHeight   = 8
	schemaVersion = 39
)

const chosen = `{namespace=~"$namespace",name=~"$name"}`

// Panels are all of them, in their order.
func Panels() []Panel {
	return []Panel{
		{Title: "Modules", Kind: "stat", Expr: `count(count by (namespace, name) (drover_module_nodes` + chosen + `))`},
		{Title: "Nodes ready", Kind: "stat", Expr: `sum(drover_module_nodes{state="ready",namespace=~"$namespace",name=~"$name"})`},
		{Title: "Nodes not ready", Kind: "stat", Expr: `sum(drover_module_nodes{state!="ready",namespace=~"$namespace",name=~"$name"})`},
		{Title: "Kernels without an image", Kind: "stat", Expr: `sum(drover_module_uncovered_kernels` + chosen + `)`},
		{Title: "Nodes by state", Kind: "timeseries", Expr: `sum by (state) (drover_module_nodes` + chosen + `)`, Legend: "{{state}}"},
		{Title: "Failing nodes by reason", Kind: "timeseries", Expr: `sum by (reason) (drover_module_failing_nodes` + chosen + `)`,
			Legend: "{{reason}}"},
		{Title: "What fails now", Kind: "table", Expr: `sum by (namespace, name, reason) (drover_module_failing_nodes` + chosen + `)`},
		{Title: "Alerts", Kind: "table", Expr: `count by (alertname, severity, namespace, name) (ALERTS{component="drover",alertstate="firing"})`},
		{Title: "Time to load, 95 of 100", Kind: "timeseries", Unit: "s", Legend: "load",
			Expr: `histogram_quantile(0.95, sum by (le) (rate(drover_load_duration_seconds_bucket[5m])))`},
		{Title: "Time to unload, 95 of 100", Kind: "timeseries", Unit: "s", Legend: "unload",
			Expr: `histogram_quantile(0.95, sum by (le) (rate(drover_unload_duration_seconds_bucket[5m])))`},
		{Title: "Requests to the API server", Kind: "timeseries", Unit: "reqps", Legend: "{{method}} {{code}}",
			Expr: `sum by (method, code) (rate(rest_client_requests_total[5m])` + leader + `)`},
		{Title: "Reconciles that failed", Kind: "timeseries", Unit: "ops", Legend: "{{controller}}",
			Expr: `sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m])` + leader + `)`},
		{Title: "Queues", Kind: "timeseries", Expr: `sum by (name) (workqueue_depth` + leader + `)`, Legend: "{{name}}"},
		{Title: "Memory of the operator", Kind: "timeseries", Unit: "bytes", Legend: "{{instance}}",
			Expr: `process_resident_memory_bytes` + leader},
	}
}

type object = map[string]any

// Dashboard is Grafana's model of it.
func Dashboard() any {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	x, y, height := 0, 0, statHeight
	for i, p := range Panels() {
		width, tall := graphWidth, graphHeight
		if p.Kind == "stat" {
			width, tall = statWidth, statHeight
		}
		if x+width > gridColumns {
			x, y = 0, y+height
		}
		height = tall
		target := object{"refId": "A", "datasource": source, "expr": p.Expr, "legendFormat": p.Legend}
		if p.Kind == "table" {
			target["format"], target["instant"] = "table", true
		}
		panels = append(panels, object{
			"id": i + 1, "title": p.Title, "type": p.Kind, "datasource": source, "targets": []object{target},
			"gridPos":     object{"x": x, "y": y, "w": width, "h": tall},
			"fieldConfig": object{"defaults": object{"unit": p.Unit}, "overrides": []object{}},
		})
		x += width
	}
	return object{
		"title": "Drover", "uid": "drover", "tags": []string{"drover"}, "schemaVersion": schemaVersion, "version": 1,
		"time": object{"from": "now-6h", "to": "now"}, "refresh": "30s", "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus"},
			variable("namespace", "label_values(drover_module_nodes, namespace)"),
			variable("name", `label_values(drover_module_nodes{namespace=~"$namespace"}, name)`),
		}},
	}
}

func variable(name, query string) object {
	return object{
		"name": name, "type": "query", "query": query, "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*",
		"datasource": object{"type": "prometheus", "uid": "${datasource}"},
	}
}
