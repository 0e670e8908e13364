// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/monitoring"
)

const (
	step     = 5 * time.Second
	replayed = 60 // minutes
	firing   = `count by (alertname, namespace) (count_over_time(ALERTS{alertstate="firing"}[%ds]))`
	recorded = `{__name__=~"drover_module_nodes|drover_module_failing_nodes|drover_module_uncovered_kernels|` +
		`drover_load_duration_seconds_count|rest_client_requests_total"}`
)

// quiet has a fleet that is well for so long: Modules are upgraded node by node, and nodes reboot.
func (s *scene) quiet(ctx context.Context, long time.Duration) error {
	c := &corner{scene: s, namespace: "default", kernelModule: "alerts_quiet"}
	begin := time.Now()
	m := c.module(moduleName)
	m.Spec.Selector = map[string]string{"drover.dev/hollow": "true"}
	if err := c.create(ctx, m); err != nil {
		return err
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	for version := 2; time.Since(begin) < long; version++ {
		if err := s.upgrade(ctx, c, version); err != nil {
			return err
		}
	}
	s.QuietMinutes = round(time.Since(begin)) / 60
	found, err := s.prom.query(ctx, fmt.Sprintf(firing, int(time.Since(begin).Seconds())))
	if err != nil {
		return err
	}
	for _, f := range found {
		s.say("RED false alarm: %v", f.Metric)
	}
	s.FalseAlarms += len(found)
	if err := s.replay(ctx, begin); err != nil {
		return err
	}
	if err := s.fleet.Admin.Delete(ctx, m); err != nil {
		return fmt.Errorf("delete the Module: %w", err)
	}
	return nil
}

// upgrade goes to a version, and two of five nodes reboot meanwhile.
func (s *scene) upgrade(ctx context.Context, c *corner, version int) error {
	if err := c.change(ctx, strconv.Itoa(version)); err != nil {
		return err
	}
	for i := range nodes * 2 / 5 {
		if err := c.on(ctx, fmt.Sprintf("hollow-%d", (i+version)%nodes), "reboot"); err != nil {
			return err
		}
		s.QuietReboots++
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	s.QuietRollouts++
	s.say("rollout %d of a fleet that is well is done", s.QuietRollouts)
	return nil
}

// replay plays what was recorded since begin again and again to promtool, until an hour is full.
func (s *scene) replay(ctx context.Context, begin time.Time) error {
	var data struct{ Result []series }
	err := s.prom.get(ctx, "query_range", url.Values{
		"query": {recorded}, "start": {begin.UTC().Format(time.RFC3339)}, "end": {time.Now().UTC().Format(time.RFC3339)},
		"step": {strconv.Itoa(int(step.Seconds()))},
	}, &data)
	if err != nil {
		return err
	}
	samples := int(time.Since(begin) / step)
	var input []object
	for _, r := range data.Result {
		values := make([]string, samples)
		for i := range values {
			values[i] = "_"
		}
		for _, v := range r.Values {
			at, isTime := v[0].(float64)
			text, isText := v[1].(string)
			if i := int((at - float64(begin.Unix())) / step.Seconds()); isTime && isText && i >= 0 && i < samples {
				values[i] = text
			}
		}
		whole := strings.Join(values, " ")
		times := replayed*int(time.Minute/step)/samples + 1
		input = append(input, object{"series": selector(r.Metric), "values": strings.TrimSpace(strings.Repeat(whole+" ", times))})
	}
	if len(input) == 0 {
		return fmt.Errorf("nothing is recorded for %s", recorded)
	}
	var asks []object
	for minute := 1; minute <= replayed; minute++ {
		asks = append(asks, object{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": fmt.Sprintf("%dm", minute)})
	}
	s.ReplayedMinutes = replayed
	replay := object{"interval": step.String(), "input_series": input, "promql_expr_test": asks}
	if out, err := s.promtool(ctx, "replay", []object{replay}); err != nil {
		s.FalseAlarms++
		s.say("RED the replayed hour: %v\n%.3000s", err, out)
	}
	return nil
}

// selector is a series as promtool reads it.
func selector(metric map[string]string) string {
	var labels []string
	for name, value := range metric {
		if name != "__name__" {
			labels = append(labels, fmt.Sprintf("%s=%q", name, value))
		}
	}
	return metric["__name__"] + "{" + strings.Join(labels, ",") + "}"
}

// units tests each rule about reasons by itself: for each of them it fires when its time is over,
// not before, and ends.
func (s *scene) units(ctx context.Context) error {
	var tests []object
	for _, a := range monitoring.Rows() {
		if a.Expr != "" || !a.OfModule() {
			continue
		}
		wait, err := time.ParseDuration(a.For)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		n := int(wait/step) + 10
		for _, reason := range a.Reasons {
			fires := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing",namespace="team",name="nic"})`, a.Name)
			at := func(d time.Duration, firing bool) object {
				samples := []object{}
				if firing {
					samples = append(samples, object{"labels": "{}", "value": 1})
				}
				return object{"expr": fires, "eval_time": d.String(), "exp_samples": samples}
			}
			tests = append(tests, object{
				"interval": step.String(), "input_series": []object{{
					"series": fmt.Sprintf("drover_module_failing_nodes{namespace=\"team\",name=\"nic\",reason=%q}", reason),
					"values": fmt.Sprintf("2x%d stale", n),
				}},
				"promql_expr_test": []object{at(wait-step, false), at(wait+step, true), at(wait+20*step, false)},
			})
		}
	}
	out, err := s.promtool(ctx, "units", tests)
	if err != nil {
		return fmt.Errorf("the rules' own tests: %w\n%.3000s", err, out)
	}
	s.say("promtool has tested the rules with %d reasons", len(tests))
	return nil
}

func (s *scene) promtool(ctx context.Context, name string, tests []object) (string, error) {
	content, err := yaml.Marshal(object{"rule_files": []string{s.prom.rules}, "evaluation_interval": step.String(), "tests": tests})
	if err != nil {
		return "", fmt.Errorf("write a test for promtool: %w", err)
	}
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return "", fmt.Errorf("write a test for promtool: %w", err)
	}
	out, err := exec.CommandContext(ctx, "promtool", "test", "rules", path).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("promtool test rules: %w", err)
	}
	return string(out), nil
}
