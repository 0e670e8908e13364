// SPDX-License-Identifier: Apache-2.0

// Package metrics shows in numbers what the controllers have computed anyway: only what is dropped
// is counted per event, and a scrape asks nothing of the API server. A Module's numbers go with it.
// Only a leader has any, so that sums over replicas are right.
package metrics

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

var ofModule = []string{"namespace", "name"}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	nodes = desc("drover_module_nodes",
		"Nodes that a Module concerns, by where it is on them: ready, loading, waiting, failed, uncovered or unloading.",
		append(ofModule, "state")...)
	failing = desc("drover_module_failing_nodes",
		"Nodes where a Module needs attention, by reason (docs/reference/reasons.md).", append(ofModule, "reason")...)
	uncovered = desc("drover_module_uncovered_kernels",
		"Kernels of nodes that a Module selects for which it has no image.", ofModule...)
	deliveries      = desc("drover_deliveries", "Deliveries under way, of all Modules.")
	deliveriesLimit = desc("drover_deliveries_limit",
		"Most deliveries that may keep the API server busy: fewer while it answers orders slowly.")

	// DroppedFields counts what internal/shared/reported drops from what agents report.
	DroppedFields = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drover_report_fields_dropped_total",
		Help: "Fields and entries of agents' reports that were dropped or changed, because no agent of this version writes them.",
	})

	// Upstream's names and labels.
	upstreamModules    = desc("kmm_module_num", "Number of Modules.")
	upstreamBuilds     = desc("kmm_in_cluster_build_num", "Number of Modules that are built in the cluster.")
	upstreamSigns      = desc("kmm_in_cluster_sign_num", "Number of Modules that are signed in the cluster.")
	upstreamPlugins    = desc("kmm_device_plugin_num", "Number of Modules with a device plugin.")
	upstreamPreflights = desc("kmm_preflight_num", "Number of PreflightValidations.")
	upstreamModprobe   = desc("kmm_modprobe_args", "Arguments for modprobe that a Module has; the value is always 1.", "name", "namespace",
		"modprobeArgs")
	upstreamModprobeRaw = desc("kmm_modprobe_raw_args", "Raw arguments for modprobe that a Module has; the value is always 1.", "name",
		"namespace", "modprobeRawArgs")
)

// Board has the present numbers of every Module, and the durations of loads and unloads.
type Board struct {
	mu      sync.Mutex
	modules map[types.NamespacedName]module
	spans   *spans
	// preflights counts PreflightValidations.
	preflights int
	// deliveries are under way, and limit is how many may be.
	deliveries, limit int
}

type module struct {
	tally               status.Tally
	build, sign, plugin bool
	args, rawArgs       string
}

// NewBoard makes an empty one.
func NewBoard() *Board {
	return &Board{modules: map[types.NamespacedName]module{}, spans: newSpans()}
}

// Set replaces a Module's numbers.
func (b *Board) Set(m *v1beta1.Module, tally status.Tally) {
	next := module{tally: tally, plugin: m.Spec.DevicePlugin != nil}
	if loader := m.Spec.ModuleLoader; loader != nil {
		next.build, next.sign = made(&loader.Container)
		next.args, next.rawArgs = joined(loader.Container.Modprobe.Args), joined(loader.Container.Modprobe.RawArgs)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.modules[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = next
}

// Forget drops a Module that is gone.
func (b *Board) Forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.modules, key)
}

// SetPreflights replaces the number of PreflightValidations.
func (b *Board) SetPreflights(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.preflights = n
}

// SetDeliveries replaces the number of deliveries that are under way, and of those that may keep
// the API server busy.
func (b *Board) SetDeliveries(n, limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliveries, b.limit = n, limit
}

func made(c *v1beta1.ModuleLoaderContainerSpec) (build, sign bool) {
	build, sign = c.Build != nil, c.Sign != nil
	for i := range c.KernelMappings {
		build = build || c.KernelMappings[i].Build != nil
		sign = sign || c.KernelMappings[i].Sign != nil
	}
	return build, sign
}

func joined(args *v1beta1.ModprobeArgs) string {
	if args == nil {
		return ""
	}
	return strings.Join(args.Load, ",")
}

// Describe implements prometheus.Collector.
func (b *Board) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		nodes, failing, uncovered, upstreamModules, upstreamBuilds, upstreamSigns, upstreamPlugins, upstreamPreflights, upstreamModprobe,
		upstreamModprobeRaw, deliveries, deliveriesLimit,
	} {
		out <- d
	}
	DroppedFields.Describe(out)
	b.spans.load.Describe(out)
	b.spans.unload.Describe(out)
	b.spans.phases.Describe(out)
}

// Collect implements prometheus.Collector.
func (b *Board) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var builds, signs, plugins int
	for key, m := range b.modules {
		for state, n := range m.tally.States {
			gauge(nodes, n, key.Namespace, key.Name, string(state))
		}
		for reason, n := range m.tally.Failing {
			gauge(failing, n, key.Namespace, key.Name, reason)
		}
		gauge(uncovered, m.tally.UncoveredKernels, key.Namespace, key.Name)
		if m.args != "" {
			gauge(upstreamModprobe, 1, key.Name, key.Namespace, m.args)
		}
		if m.rawArgs != "" {
			gauge(upstreamModprobeRaw, 1, key.Name, key.Namespace, m.rawArgs)
		}
		builds, signs, plugins = builds+number(m.build), signs+number(m.sign), plugins+number(m.plugin)
	}
	gauge(upstreamModules, len(b.modules))
	gauge(upstreamBuilds, builds)
	gauge(upstreamSigns, signs)
	gauge(upstreamPlugins, plugins)
	gauge(upstreamPreflights, b.preflights)
	gauge(deliveries, b.deliveries)
	gauge(deliveriesLimit, b.limit)
	DroppedFields.Collect(out)
	b.spans.load.Collect(out)
	b.spans.unload.Collect(out)
	b.spans.phases.Collect(out)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// spans are orders on their way, since when, and how long finished ones took.
type spans struct {
	load, unload prometheus.Histogram
	// phases of load, which they sum to.
	phases *prometheus.HistogramVec

	mu sync.Mutex
	// open orders by node and Module.
	open map[string]map[types.NamespacedName]span
}

type span struct {
	goal  goal
	since time.Time
	// held is since when the node reports that it holds what was delivered; zero: it does not yet.
	held time.Time
}

// Phases of a load.
const (
	phaseDelivered = "delivered"
	phaseLoaded    = "loaded"
)

// goal is what an order wants that is not so yet; zero: all is as ordered.
type goal struct {
	state v1beta1.NodeModuleState
	image string
}

// buckets reach from a load of what the node holds to a delivery over a slow line.
var buckets = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}

func newSpans() *spans {
	return &spans{
		load: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "drover_load_duration_seconds", Buckets: buckets,
			Help: "Time from a node's order to load a Module, or another build of it, to its being live there, delivery included.",
		}),
		unload: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "drover_unload_duration_seconds", Buckets: buckets,
			Help: "Time from a node's order to unload a Module to its being out of the kernel.",
		}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "drover_module_node_phase_seconds", Buckets: buckets,
			Help: "Parts of drover_load_duration_seconds: until the node holds what was delivered, and from then until it is live.",
		}, []string{"phase"}),
		open: map[string]map[types.NamespacedName]span{},
	}
}

// Saw takes the news about one node; before is nil for a new object. Orders from before the
// operator's start are not measured: nobody knows since when they stand.
func (b *Board) Saw(before, now *v1beta1.NodeModulesConfig, at time.Time) {
	s := b.spans
	s.mu.Lock()
	defer s.mu.Unlock()
	open := map[types.NamespacedName]span{}
	for i := range now.Spec.Modules {
		order := &now.Spec.Modules[i]
		key := types.NamespacedName{Namespace: order.Namespace, Name: order.Name}
		next, was := goalOf(now, order), s.open[now.Name][key]
		switch {
		case next == (goal{}):
			s.done(was, at)
		case was.goal == next:
			open[key] = was.seen(now, order, at)
		case !sameOrder(status.EntryOf(before, key.Namespace, key.Name).Order, order):
			open[key] = span{goal: next, since: at}.seen(now, order, at)
		}
	}
	if len(open) == 0 {
		delete(s.open, now.Name)
		return
	}
	s.open[now.Name] = open
}

// Lost forgets what was on its way on a node.
func (b *Board) Lost(node string) {
	b.spans.mu.Lock()
	defer b.spans.mu.Unlock()
	delete(b.spans.open, node)
}

func (s *spans) done(was span, at time.Time) {
	switch {
	case was.since.IsZero():
	case was.goal.state == v1beta1.NodeModuleAbsent:
		s.unload.Observe(at.Sub(was.since).Seconds())
	default:
		held := was.held
		if held.IsZero() {
			held = at // one report told of both
		}
		s.load.Observe(at.Sub(was.since).Seconds())
		s.phases.WithLabelValues(phaseDelivered).Observe(held.Sub(was.since).Seconds())
		s.phases.WithLabelValues(phaseLoaded).Observe(at.Sub(held).Seconds())
	}
}

// seen notes when the node holds what an order needs.
func (s span) seen(c *v1beta1.NodeModulesConfig, order *v1beta1.NodeModuleSpec, at time.Time) span {
	if s.held.IsZero() && order.Delivery != nil &&
		slices.ContainsFunc(c.Status.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == order.Delivery.ID }) {
		s.held = at
	}
	return s
}

func goalOf(c *v1beta1.NodeModulesConfig, order *v1beta1.NodeModuleSpec) goal {
	switch live := status.EntryOf(c, order.Namespace, order.Name).Live; {
	case order.State == v1beta1.NodeModuleAbsent && live == nil:
		return goal{}
	case order.State == v1beta1.NodeModuleAbsent:
		return goal{state: v1beta1.NodeModuleAbsent}
	case live != nil && rollout.SameBuild(live.Config, &order.Config):
		return goal{}
	}
	return goal{state: v1beta1.NodeModulePresent, image: order.Config.ContainerImage}
}

func sameOrder(a, b *v1beta1.NodeModuleSpec) bool {
	return a != nil && (a.State == v1beta1.NodeModuleAbsent) == (b.State == v1beta1.NodeModuleAbsent) &&
		rollout.SameBuild(&a.Config, &b.Config)
}
