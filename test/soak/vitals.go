// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/test/soak/growth"
)

const (
	mib = 1 << 20
	// objects is how the names of series begin that count them.
	objects = "objects."
)

// gauges are the operator's own metrics that are watched, and what they are called here.
var gauges = map[string]string{
	"go_goroutines":                 "operator.goroutines",
	"process_open_fds":              "operator.descriptors",
	"process_resident_memory_bytes": "operator.residentMiB",
}

// allow says by how much a series may grow. Counts of goroutines and descriptors move with
// connections and with what is under way; memory with garbage. Objects are exact.
func allow(name string) growth.Allowance {
	switch {
	case strings.HasPrefix(name, objects):
		return growth.Allowance{}
	case strings.HasSuffix(name, "MiB"):
		return growth.Allowance{Share: 0.2, Slack: 8}
	}
	return growth.Allowance{Share: 0.1, Slack: 10}
}

// sample takes the size of everything, in a calm. What was sampled of an operator that has been
// killed since says nothing about the one that lives.
func (s *scene) sample(ctx context.Context) error {
	if pid := s.keeper.operator().PID(); pid != s.sampled {
		s.sampled = pid
		for _, name := range gauges {
			delete(s.series, name)
		}
	}
	values, err := s.operatorVitals(ctx)
	if err != nil {
		return err
	}
	h, err := s.f.HollowVitals(ctx)
	if err != nil {
		return err
	}
	s.result.AgentKills, s.result.PullsRefused = h.AgentKills, h.RefusedPulls
	if s.result.NoSpace, err = noSpace(s.f.Hollow.Log()); err != nil {
		return err
	}
	values["agents.goroutines"], values["agents.descriptors"] = float64(h.Goroutines), float64(h.Descriptors)
	values["agents.heapMiB"] = h.HeapBytes / mib
	if err := s.countObjects(ctx, values); err != nil {
		return err
	}
	for name, value := range values {
		s.series[name] = append(s.series[name], value)
	}
	s.say("operator: %.0f goroutines, %.0f descriptors, %.1f MiB; agents: %d, %d, %.1f MiB", values["operator.goroutines"],
		values["operator.descriptors"], values["operator.residentMiB"], h.Goroutines, h.Descriptors, h.HeapBytes/mib)
	return nil
}

// noSpace counts what agents say of full disks.
func noSpace(log string) (n int, err error) {
	f, err := os.Open(log)
	if err != nil {
		return 0, fmt.Errorf("read the agents' log: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), syscall.ENOSPC.Error()) {
			n++
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read the agents' log: %w", err)
	}
	return n, nil
}

func (s *scene) operatorVitals(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the operator's metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for the operator's metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the operator's metrics: %w", err)
	}
	values := map[string]float64{}
	for family, name := range gauges {
		f := families[family]
		if f.GetType() != dto.MetricType_GAUGE || len(f.GetMetric()) != 1 {
			return nil, fmt.Errorf("the operator has no metric %s", family)
		}
		values[name] = f.GetMetric()[0].GetGauge().GetValue()
	}
	values["operator.residentMiB"] /= mib
	return values, nil
}

// watches counts the watches of NodeModulesConfigs that the API server serves.
func (s *scene) watches(ctx context.Context) (float64, error) {
	d, err := discovery.NewDiscoveryClientForConfig(s.f.AdminConfig)
	if err != nil {
		return 0, fmt.Errorf("connect to the API server's metrics: %w", err)
	}
	metrics, err := d.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the API server's metrics: %w", err)
	}
	defer func() { _ = metrics.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	sum := 0.0
	for _, m := range families["apiserver_longrunning_requests"].GetMetric() {
		if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == "resource" && l.GetValue() == "nodemodulesconfigs"
		}) {
			sum += m.GetGauge().GetValue()
		}
	}
	return sum, nil
}

// countObjects counts the API's objects by kind, events excepted: they end after an hour.
func (s *scene) countObjects(ctx context.Context, values map[string]float64) error {
	d, err := discovery.NewDiscoveryClientForConfig(s.f.AdminConfig)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	quiet := rest.CopyConfig(s.f.AdminConfig)
	quiet.WarningHandler = rest.NoWarnings{} // kinds that are deprecated are counted, too
	kinds, err := metadata.NewForConfig(quiet)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	all, err := d.ServerPreferredResources()
	if err != nil {
		return fmt.Errorf("ask for the kinds of objects: %w", err)
	}
	for _, group := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, all) {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return fmt.Errorf("read the group %s: %w", group.GroupVersion, err)
		}
		for _, r := range group.APIResources {
			if r.Name == "events" {
				continue
			}
			list, err := kinds.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil {
				return fmt.Errorf("count %s: %w", r.Name, err)
			}
			n := len(list.Items)
			if list.RemainingItemCount != nil {
				n += int(*list.RemainingItemCount)
			}
			values[strings.TrimSuffix(objects+r.Name+"."+version.Group, ".")] = float64(n)
		}
	}
	return nil
}
