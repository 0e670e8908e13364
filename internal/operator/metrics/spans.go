// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// spans are orders on their way, since when, and how long finished ones took.
type spans struct {
	load, unload prometheus.Histogram

	mu sync.Mutex
	// open orders by node and Module.
	open map[string]map[types.NamespacedName]span
}

type span struct {
	goal  goal
	since time.Time
}

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
			open[key] = was
		case !sameOrder(status.EntryOf(before, key.Namespace, key.Name).Order, order):
			open[key] = span{goal: next, since: at}
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
		s.load.Observe(at.Sub(was.since).Seconds())
	}
}

func goalOf(c *v1beta1.NodeModulesConfig, order *v1beta1.NodeModuleSpec) goal {
	switch live := status.EntryOf(c, order.Namespace, order.Name).Live; {
	case order.State == v1beta1.NodeModuleAbsent && live == nil:
		return goal{}
	case order.State == v1beta1.NodeModuleAbsent:
		return goal{state: v1beta1.NodeModuleAbsent}
	case live != nil && rollout.SameBuild(ptr.Deref(live.Config, v1beta1.ModuleConfig{}), order.Config):
		return goal{}
	}
	return goal{state: v1beta1.NodeModulePresent, image: order.Config.ContainerImage}
}

func sameOrder(a, b *v1beta1.NodeModuleSpec) bool {
	return a != nil && (a.State == v1beta1.NodeModuleAbsent) == (b.State == v1beta1.NodeModuleAbsent) && rollout.SameBuild(a.Config, b.Config)
}
