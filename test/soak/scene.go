// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/soak/growth"
	"github.com/drover-project/drover/test/soak/plan"
)

// leaks is how many watches are left behind in each round where that is what is broken.
const leaks = 20

// scene is a fleet and what happens to it.
type scene struct {
	f       *fleet.Fleet
	o       options
	say     func(string, ...any)
	metrics string // the operator's address
	plan    plan.Plan
	world   *world
	keeper  *keeper
	audit   *auditor
	cache   cache.Cache
	changed chan struct{}
	// background is what runs all along, until running ends.
	background *errgroup.Group
	running    context.Context
	// outages and throttles come one at a time each.
	outages, throttles sync.Mutex
	// series are what was sampled, sampled the operator's process then.
	series  map[string]growth.Series
	sampled int
	told    map[string]bool // findings
	repeats int             // how many of the repeated writes were told

	mu     sync.Mutex // guards result.Faults
	result result
}

func newScene(f *fleet.Fleet, o options, metrics string, say func(string, ...any)) *scene {
	w := newWorld(o.nodes, modules)
	s := &scene{
		f: f, o: o, say: say, metrics: metrics, world: w, keeper: &keeper{f: f, say: say}, audit: newAuditor(f, w),
		changed: make(chan struct{}, 1), series: map[string]growth.Series{}, told: map[string]bool{},
		plan: plan.Make(plan.Options{
			Seed: o.seed, Rounds: o.rounds(), Nodes: o.nodes, Modules: modules, Kernels: len(kernels), Storm: storm,
		}),
	}
	s.result = result{
		Nodes: o.nodes, Modules: modules, Minutes: o.minutes, Seed: o.seed, Plan: s.plan.Digest(), Faults: map[plan.Kind]int{}, Growth: unknown,
		UnaskedUnloads: unknown,
	}
	for _, kind := range plan.Kinds {
		s.result.Faults[kind] = 0
	}
	return s
}

// play is everything that happens.
func (s *scene) play(ctx context.Context) error {
	cancelled, stop := context.WithCancel(ctx)
	s.background, s.running = errgroup.WithContext(cancelled)
	s.background.Go(func() error { return s.keeper.run(s.running) })
	err := s.watch(s.running)
	if err == nil {
		err = s.rounds(s.running)
	}
	stop()
	if ended := s.background.Wait(); ctx.Err() == nil && ended != nil && !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	return err
}

func (s *scene) rounds(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	for i, events := range s.plan {
		s.say("round %d of %d: %v", i+1, len(s.plan), kindsOf(events))
		if err := s.storm(ctx, events); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		if err := s.calm(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		s.result.Rounds++
		if err := s.broken(ctx, i); err != nil {
			return err
		}
	}
	return s.remove(ctx)
}

// begin labels the nodes and loads the Modules.
func (s *scene) begin(ctx context.Context) error {
	if err := s.relabel(ctx, plan.Event{Kind: plan.OtherLabels, Nodes: s.all()}); err != nil {
		return err
	}
	for _, m := range s.world.modules {
		if err := s.create(ctx, m); err != nil {
			return err
		}
	}
	return s.until(ctx, "all is well at first", s.well)
}

// all are the numbers of all nodes.
func (s *scene) all() []int {
	numbers := make([]int, s.o.nodes)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// calm waits until all is well, judges and samples. Agents that nothing has killed yet live on from
// then.
func (s *scene) calm(ctx context.Context) error {
	begin := time.Now()
	if err := s.until(ctx, "all is well", s.well); err != nil {
		s.result.NotConverged++
		return err
	}
	s.say("all is well after %.1f s", time.Since(begin).Seconds())
	if err := s.nodes(ctx, s.all(), "/spare?"); err != nil {
		return err
	}
	if err := s.judge(ctx); err != nil {
		return err
	}
	return s.sample(ctx)
}

// broken breaks something on purpose after a round.
func (s *scene) broken(ctx context.Context, round int) error {
	switch os.Getenv("BREAK") {
	case "unload":
		if round > 0 {
			return nil
		}
		m := s.world.modules[0]
		i := slices.IndexFunc(s.world.nodes, m.selects)
		if i < 0 {
			return fmt.Errorf("no node has Module %s, so that nobody can remove it", m.name())
		}
		return s.f.Debug(ctx, "/rmmod?node="+nodeName(i)+"&module="+m.name())
	case "leak":
		for range leaks {
			if err := s.leak(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// leak watches the kernels for good.
func (s *scene) leak(ctx context.Context) error {
	began := make(chan struct{})
	told := sync.OnceFunc(func() { close(began) })
	s.background.Go(func() error { return s.f.KernelChanges(s.running, told) })
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-began:
		return nil
	}
}

// remove deletes all Modules and waits until nothing is left.
func (s *scene) remove(ctx context.Context) error {
	for _, m := range s.world.modules {
		object := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name()}}
		if err := s.f.Admin.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Module %s: %w", m.name(), err)
		}
	}
	if err := s.until(ctx, "nothing is left", s.gone); err != nil {
		s.result.Leftovers++
		return err
	}
	return s.judge(ctx)
}

// judgeGrowth says what grew.
func (s *scene) judgeGrowth() {
	growing := growth.Growing(s.series, allow)
	s.result.Growth = len(growing)
	s.result.Series = map[string][2]float64{}
	for _, name := range slices.Sorted(maps.Keys(s.series)) {
		first, last := s.series[name].Ends()
		grows := slices.Contains(growing, name)
		if grows || !strings.HasPrefix(name, objects) {
			s.result.Series[name] = [2]float64{round(first), round(last)}
		}
		if grows {
			s.say("%s grows: %.1f", name, []float64(s.series[name]))
		}
	}
}

func kindsOf(events []plan.Event) []plan.Kind {
	var kinds []plan.Kind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
