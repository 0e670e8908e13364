// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	pace = 250 * time.Millisecond
	// config scrapes and evaluates as often as it can without being the load itself. The labels of the
	// target are those that a ServiceMonitor brings: the Module's must win.
	config = `global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [%s]
scrape_configs:
- job_name: drover-operator-metrics
  honor_labels: true
  static_configs:
  - targets: [%q]
    labels: {namespace: drover-system, pod: drover-operator}
`
)

type object = map[string]any

// prometheus is a running one.
type prometheus struct {
	*fleet.Process
	address, rules string
}

// rulesFile makes a file of rules from the PrometheusRule that is installed.
func rulesFile(dir string) (string, error) {
	content, err := os.ReadFile("config/monitoring/rules.yaml")
	if err != nil {
		return "", fmt.Errorf("read the rules: %w", err)
	}
	var rule struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &rule); err != nil {
		return "", fmt.Errorf("read the rules: %w", err)
	}
	spec, err := yaml.JSONToYAML(rule.Spec)
	if err != nil {
		return "", fmt.Errorf("read the rules: %w", err)
	}
	if os.Getenv("BREAK") == "rule" {
		spec = []byte(strings.ReplaceAll(string(spec), "ImageNotFound", "ImageNotFond"))
	}
	path := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(path, spec, 0o644); err != nil {
		return "", fmt.Errorf("write the rules: %w", err)
	}
	return path, nil
}

// startPrometheus watches the operator's metrics at target.
func startPrometheus(ctx context.Context, dir, target string) (*prometheus, error) {
	address, err := fleet.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &prometheus{address: address}
	if p.rules, err = rulesFile(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, config, p.rules, target), 0o644); err != nil {
		return nil, fmt.Errorf("configure Prometheus: %w", err)
	}
	p.Process, err = fleet.StartProcess("/usr/bin/prometheus", filepath.Join(dir, "prometheus.log"), []string{
		"--config.file=" + path, "--storage.tsdb.path=" + filepath.Join(dir, "tsdb"), "--web.listen-address=" + address,
	})
	if err != nil {
		return nil, err
	}
	return p, p.WaitFor(ctx, "Server is ready to receive web requests", time.Minute)
}

// get asks Prometheus's API and reads the field data of the answer.
func (p *prometheus) get(ctx context.Context, path string, query url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read Prometheus's answer: %w", err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("query Prometheus: it refuses %s %v: %s", path, query, answer.Error)
	}
	return nil
}

// series is one of a query's answer: of a moment a value, of a range values.
type series struct {
	Metric map[string]string
	Values [][2]any
}

func (p *prometheus) query(ctx context.Context, expr string) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

type alert struct {
	Labels map[string]string
	State  string
}

// state of the alert about a Module, or about Drover where the namespace is empty.
func (p *prometheus) state(ctx context.Context, name, namespace string) (string, error) {
	var data struct{ Alerts []alert }
	if err := p.get(ctx, "alerts", nil, &data); err != nil {
		return "", err
	}
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name && (namespace == "" || a.Labels["namespace"] == namespace) {
			return a.State, nil
		}
	}
	return "", nil
}

// until waits for a state of an alert; empty: there is none.
func (p *prometheus) until(ctx context.Context, name, namespace, want string, patience time.Duration) error {
	var state string
	var last error
	err := wait.PollUntilContextTimeout(ctx, pace, patience, true, func(ctx context.Context) (bool, error) {
		now, err := p.state(ctx, name, namespace)
		if last = err; err == nil {
			state = now
		}
		return err == nil && state == want, nil
	})
	if err != nil {
		return fmt.Errorf("%s of %q is %q, and not %q, after %s: %w", name, namespace, state, want, patience, errors.Join(err, last))
	}
	return nil
}
