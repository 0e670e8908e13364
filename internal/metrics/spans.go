// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// spans are orders on their way, since when they have been seen, and how long those took that are done.
type spans struct {
	load, unload prometheus.Histogram

	mu sync.Mutex
	// open orders by node and Module. What is done is not in it.
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

// buckets reach from a load of what is on the node to a delivery over a slow line.
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

// Saw takes the news about one node; before is nil for an object that is new, and so are its orders. What stood when the
// operator began is not measured: nobody knows since when.
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
		case before == nil || orderOf(before, key) == nil || !sameOrder(orderOf(before, key), order):
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

// goalOf compares an order with what is live.
func goalOf(c *v1beta1.NodeModulesConfig, order *v1beta1.NodeModuleSpec) goal {
	var live *v1beta1.NodeModuleStatus
	for i := range c.Status.Modules {
		if m := &c.Status.Modules[i]; m.Namespace == order.Namespace && m.Name == order.Name {
			live = m
		}
	}
	switch {
	case order.State == v1beta1.NodeModuleAbsent && live == nil:
		return goal{}
	case order.State == v1beta1.NodeModuleAbsent:
		return goal{state: v1beta1.NodeModuleAbsent}
	case live != nil && sameBuild(ptr.Deref(live.Config, v1beta1.ModuleConfig{}), order.Config):
		return goal{}
	}
	return goal{state: v1beta1.NodeModulePresent, image: order.Config.ContainerImage}
}

func orderOf(c *v1beta1.NodeModulesConfig, key types.NamespacedName) *v1beta1.NodeModuleSpec {
	for i := range c.Spec.Modules {
		if o := &c.Spec.Modules[i]; o.Namespace == key.Namespace && o.Name == key.Name {
			return o
		}
	}
	return nil
}

func sameOrder(a, b *v1beta1.NodeModuleSpec) bool {
	return (a.State == v1beta1.NodeModuleAbsent) == (b.State == v1beta1.NodeModuleAbsent) && sameBuild(a.Config, b.Config)
}

// sameBuild leaves out how an image is pulled.
func sameBuild(a, b v1beta1.ModuleConfig) bool {
	a.ImagePullPolicy, b.ImagePullPolicy = corev1.PullPolicy(""), corev1.PullPolicy("")
	a.InsecurePull, b.InsecurePull = false, false
	return equality.Semantic.DeepEqual(a, b)
}
