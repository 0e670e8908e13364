// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/status"
)

func module(name string, change func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec:       v1beta1.ModuleSpec{ModuleLoader: &v1beta1.ModuleLoaderSpec{}},
	}
	if change != nil {
		change(m)
	}
	return m
}

func full() *metrics.Board {
	b := metrics.NewBoard()
	b.Set(module("nic", func(m *v1beta1.Module) {
		c := &m.Spec.ModuleLoader.Container
		c.Build, c.Sign = &v1beta1.Build{}, &v1beta1.Sign{}
		c.Modprobe.Args = &v1beta1.ModprobeArgs{Load: []string{"-v", "-s"}}
		c.Modprobe.RawArgs = &v1beta1.ModprobeArgs{Load: []string{"nic", "debug=1"}}
		m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{}
	}), status.Tally{
		States:           map[status.NodeState]int{status.NodeReady: 3, status.NodeFailed: 1},
		Failing:          map[string]int{v1beta1.ReasonNoSuchDevice: 1},
		UncoveredKernels: 2,
	})
	return b
}

func TestModulesAreCounted(t *testing.T) {
	b := full()
	b.Set(module("gpu", nil), status.Tally{States: map[status.NodeState]int{status.NodeLoading: 5}})
	b.Set(module("gpu", nil), status.Tally{States: map[status.NodeState]int{status.NodeReady: 5}})
	b.SetPreflights(3)
	b.SetDeliveries(7, 25)
	same(t, b, `
drover_deliveries 7
drover_deliveries_limit 25
drover_module_failing_nodes{name="nic",namespace="team",reason="NoSuchDevice"} 1
drover_module_nodes{name="gpu",namespace="team",state="ready"} 5
drover_module_nodes{name="nic",namespace="team",state="failed"} 1
drover_module_nodes{name="nic",namespace="team",state="ready"} 3
drover_module_uncovered_kernels{name="gpu",namespace="team"} 0
drover_module_uncovered_kernels{name="nic",namespace="team"} 2
drover_report_fields_dropped_total 0
kmm_device_plugin_num 1
kmm_in_cluster_build_num 1
kmm_in_cluster_sign_num 1
kmm_modprobe_args{modprobeArgs="-v,-s",name="nic",namespace="team"} 1
kmm_modprobe_raw_args{modprobeRawArgs="nic,debug=1",name="nic",namespace="team"} 1
kmm_module_num 2
kmm_preflight_num 3
`)
	b.SetPreflights(0)
	b.SetDeliveries(0, 26)
	// All of a Module's goes with it.
	b.Forget(types.NamespacedName{Namespace: "team", Name: "nic"})
	b.Forget(types.NamespacedName{Namespace: "team", Name: "gpu"})
	same(t, b, `
drover_deliveries 0
drover_deliveries_limit 26
drover_report_fields_dropped_total 0
kmm_device_plugin_num 0
kmm_in_cluster_build_num 0
kmm_in_cluster_sign_num 0
kmm_module_num 0
kmm_preflight_num 0
`)
}

var comment = regexp.MustCompile(`(?m)^#.*\n`)

// same compares all but the histograms, sorted.
func same(t *testing.T, b *metrics.Board, want string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text, got strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(comment.ReplaceAllString(text.String(), "")) {
		if !strings.Contains(line, "_duration_seconds") {
			got.WriteString(line)
		}
	}
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOrdersAreTimed replays what a watch shows of one node.
func TestOrdersAreTimed(t *testing.T) {
	order := func(image string, state v1beta1.NodeModuleState) v1beta1.NodeModuleSpec {
		return v1beta1.NodeModuleSpec{
			ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "nic"}, Config: v1beta1.ModuleConfig{ContainerImage: image}, State: state,
		}
	}
	live := func(image string) v1beta1.NodeModuleStatus {
		return v1beta1.NodeModuleStatus{
			ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "nic"}, Config: &v1beta1.ModuleConfig{ContainerImage: image},
		}
	}
	config := func(order *v1beta1.NodeModuleSpec, live *v1beta1.NodeModuleStatus) *v1beta1.NodeModulesConfig {
		c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		if order != nil {
			c.Spec.Modules = []v1beta1.NodeModuleSpec{*order}
		}
		if live != nil {
			c.Status.Modules = []v1beta1.NodeModuleStatus{*live}
		}
		return c
	}
	one, two, gone := order("nic:1", ""), order("nic:2", ""), order("nic:1", v1beta1.NodeModuleAbsent)
	liveOne, liveTwo := live("nic:1"), live("nic:2")
	repulled := order("nic:1", "")
	repulled.Config.ImagePullPolicy = "Always"
	type seen struct {
		config *v1beta1.NodeModulesConfig
		second int
	}
	type took struct{ Loads, Unloads []float64 }
	cases := map[string]struct {
		given []seen
		known bool // the first is what stood when the operator began
		then  took
	}{
		"a new node": {given: []seen{{config(&one, nil), 1}, {config(&one, nil), 2}, {config(&one, &liveOne), 4}},
			then: took{Loads: []float64{3}}},
		"a new Module": {given: []seen{{config(nil, nil), 0}, {config(&one, nil), 5}, {config(&one, &liveOne), 6}}, known: true,
			then: took{Loads: []float64{1}}},
		"stood already": {given: []seen{{config(&one, nil), 1}, {config(&one, &liveOne), 4}}, known: true},
		"another build": {given: []seen{{config(&one, &liveOne), 1}, {config(&two, &liveOne), 2}, {config(&two, nil), 3},
			{config(&two, &liveTwo), 9}}, known: true, then: took{Loads: []float64{7}}},
		"asked for twice": {given: []seen{{config(&one, nil), 1}, {config(&two, nil), 2}, {config(&two, &liveTwo), 5}},
			then: took{Loads: []float64{3}}},
		"only the pull policy": {given: []seen{{config(&one, &liveOne), 1}, {config(&repulled, &liveOne), 2}, {config(&repulled, &liveOne), 3}},
			known: true},
		"a reboot": {given: []seen{{config(&one, &liveOne), 1}, {config(&one, nil), 2}, {config(&one, &liveOne), 3}}, known: true},
		"an unload": {given: []seen{{config(&one, &liveOne), 1}, {config(&gone, &liveOne), 2}, {config(&gone, nil), 2},
			{config(nil, nil), 3}}, known: true, then: took{Unloads: []float64{0}}},
		"an order withdrawn": {given: []seen{{config(&one, nil), 1}, {config(nil, nil), 2}, {config(nil, nil), 3}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := metrics.NewBoard()
			var before *v1beta1.NodeModulesConfig
			for i, s := range tc.given {
				if i > 0 || !tc.known {
					b.Saw(before, s.config, time.Unix(int64(s.second), 0))
				}
				before = s.config
			}
			if diff := cmp.Diff(tc.then, took{Loads: sumOf(t, b, "drover_load_duration_seconds"),
				Unloads: sumOf(t, b, "drover_unload_duration_seconds")}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPhasesSumToTheLoad: the time until the node holds the delivery, and the rest.
func TestPhasesSumToTheLoad(t *testing.T) {
	const ordered, held, live = 1, 2, 4
	both := func(delivered, loaded float64) map[string]float64 {
		return map[string]float64{"delivered": delivered, "loaded": loaded}
	}
	for name, tc := range map[string]struct {
		// seen are the seconds at which reports come, and what they say.
		seen map[int][]int
		want map[string]float64
	}{
		"one after the other": {
			seen: map[int][]int{0: {ordered}, 3: {ordered, held}, 5: {ordered, held}, 7: {ordered, held, live}},
			want: both(3, 4),
		},
		"the node held it":        {seen: map[int][]int{0: {ordered, held}, 2: {ordered, held, live}}, want: both(0, 2)},
		"both in one report":      {seen: map[int][]int{0: {ordered}, 6: {ordered, held, live}}, want: both(6, 0)},
		"not live yet":            {seen: map[int][]int{0: {ordered}, 3: {ordered, held}}},
		"it holds something else": {seen: map[int][]int{0: {ordered}, 8: {ordered, live}}, want: both(8, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			b := metrics.NewBoard()
			var before *v1beta1.NodeModulesConfig
			for _, second := range slices.Sorted(maps.Keys(tc.seen)) {
				now := reported(slices.Contains(tc.seen[second], held), slices.Contains(tc.seen[second], live))
				b.Saw(before, now, time.Unix(int64(second), 0))
				before = now
			}
			got, sum := phasesOf(t, b)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if load := sumOf(t, b, "drover_load_duration_seconds"); len(load) == 1 && load[0] != sum {
				t.Errorf("the phases sum to %f, the load took %f", sum, load[0])
			}
		})
	}
}

// reported is a node with an order for nic, which holds its delivery, or has it in the kernel.
func reported(held, live bool) *v1beta1.NodeModulesConfig {
	item, load := v1beta1.ModuleItem{Namespace: "team", Name: "nic"}, v1beta1.ModuleConfig{ContainerImage: "nic:1"}
	c := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	c.Spec.Modules = []v1beta1.NodeModuleSpec{{ModuleItem: item, Config: load, Delivery: &v1beta1.Delivery{ID: "d1"}}}
	c.Status.Artifacts = []v1beta1.NodeArtifact{{ID: "d0"}}
	if held {
		c.Status.Artifacts = append(c.Status.Artifacts, v1beta1.NodeArtifact{ID: "d1"})
	}
	if live {
		c.Status.Modules = []v1beta1.NodeModuleStatus{{ModuleItem: item, Config: &load}}
	}
	return c
}

// phasesOf are the sums of each phase, and of all.
func phasesOf(t *testing.T, b *metrics.Board) (phases map[string]float64, sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	phases = map[string]float64{}
	for _, f := range families {
		if f.GetName() != "drover_module_node_phase_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			phases[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleSum()
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return phases, sum
}

// sumOf is a histogram's only observation, or nothing.
func sumOf(t *testing.T, b *metrics.Board, name string) []float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); f.GetName() == name && h.GetSampleCount() > 0 {
			if h.GetSampleCount() != 1 {
				t.Errorf("%d observations of %s", h.GetSampleCount(), name)
			}
			return []float64{h.GetSampleSum()}
		}
	}
	return nil
}

// TestNamesAreGood by Prometheus' own rules, but for upstream's names, which are as they are.
func TestNamesAreGood(t *testing.T) {
	problems, err := testutil.CollectAndLint(full())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "kmm_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestMetricsAreDocumented compares docs/reference/metrics.md with the code: names, labels, and
// what they mean.
func TestMetricsAreDocumented(t *testing.T) {
	content, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\| ([^|]+) \\|$").FindAllStringSubmatch(string(content), -1) {
		documented[row[1]] = strings.ReplaceAll(row[2], "`", "") + ": " + row[3]
	}
	described := make(chan *prometheus.Desc, 100)
	full().Describe(described)
	close(described)
	exist := map[string]string{}
	form := regexp.MustCompile(`fqName: "(\w+)", help: "([^"]+)",.* variableLabels: \{([^}]*)\}`)
	for d := range described {
		parts := form.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("cannot read %s", d)
		}
		exist[parts[1]] = strings.ReplaceAll(parts[3], ",", ", ") + ": " + parts[2]
	}
	if diff := cmp.Diff(exist, documented); diff != "" {
		t.Errorf("metrics in the code (-) and in docs/reference/metrics.md (+) differ:\n%s", diff)
	}
}
