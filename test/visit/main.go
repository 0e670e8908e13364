// SPDX-License-Identifier: Apache-2.0

// Command visit changes three Modules together on hollow nodes in two pools, under a limit that all
// Modules share, and counts from outside: how often a node was cordoned, by watching Nodes, and how
// many nodes of a pool were without a kernel module at a time, by the fake kernels' journals.
//
// BREAK=budget starts the operator without the limit: the result must be red.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	poolLabel = "example.com/pool"
	pools     = 2
	// limit of unavailable nodes in a pool, and of each Module's in both.
	limit, most = 3, 8
	patience    = 10 * time.Minute
	// maxDrains of a node, on average. A kernel that loads in no time may be done before the other
	// Modules are about to begin there.
	maxDrains = 1.75
)

var modules = []string{"gpu", "nic", "storage"}

// result is the line that ends the test.
type result struct {
	Nodes   int `json:"nodes"`
	Modules int `json:"modules"`
	Pools   int `json:"pools"`
	Limit   int `json:"limit"`
	// DrainsPerNode is how often a node was cordoned, on average, MostDrains the node that was so most
	// often. By a budget for each Module, it is once for each.
	DrainsPerNode float64 `json:"drainsPerNode"`
	MostDrains    int     `json:"mostDrains"`
	// MostCordoned nodes of a pool were cordoned at a time, MostWithout were without a kernel module.
	MostCordoned int `json:"mostCordoned"`
	MostWithout  int `json:"mostWithout"`
	// OverBudget are the nodes above the limit, at the worst moment.
	OverBudget int `json:"overBudget"`
	// Starved Modules were not on all nodes in time.
	Starved int     `json:"starved"`
	Seconds float64 `json:"seconds"`
}

func (r *result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Starved == 0, "%d Modules were not on all nodes after %s", r.Starved, patience)
	check(r.DrainsPerNode <= maxDrains, "nodes were drained %.2f times, at most %.2f are expected", r.DrainsPerNode, maxDrains)
	check(r.MostWithout > 0, "the kernels' journals have no change")
	check(r.OverBudget == 0, "%d nodes of a pool were unavailable above the limit of %d", r.OverBudget, r.Limit)
	return errors.Join(errs...)
}

func main() {
	nodes := flag.Int("nodes", 60, "number of hollow nodes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *nodes)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-visit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	args := []string{fmt.Sprintf("--max-unavailable-nodes=%d", limit), "--node-pool-label=" + poolLabel}
	if os.Getenv("BREAK") == "budget" {
		args = nil
	}
	f, err := fleet.Start(ctx, fleet.Options{Nodes: nodes, Kernels: []string{"6.12.57+deb12-amd64"}, OperatorArgs: args, Say: say,
		InMemory: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	s := &scene{Fleet: f, say: say, pool: map[string]string{}, cordoned: map[string]bool{}, drains: map[string]int{}}
	r, err := s.visit(ctx, nodes)
	if err != nil {
		return err
	}
	r.Seconds = time.Since(begin).Round(100 * time.Millisecond).Seconds()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return r.wrong()
}

type scene struct {
	*fleet.Fleet
	say  func(format string, args ...any)
	pool map[string]string // by node

	mu           sync.Mutex
	cordoned     map[string]bool
	drains       map[string]int // by node
	mostCordoned int
}

func (s *scene) visit(ctx context.Context, nodes int) (*result, error) {
	if err := s.label(ctx); err != nil {
		return nil, err
	}
	for _, name := range modules {
		if err := s.Admin.Create(ctx, module(name)); err != nil {
			return nil, fmt.Errorf("create Module %s: %w", name, err)
		}
	}
	if left := s.await(ctx, nodes, "1"); left > 0 {
		return nil, fmt.Errorf("%d Modules are not on all nodes", left)
	}
	s.say("%d Modules are on %d nodes", len(modules), nodes)
	watching, end := context.WithCancel(ctx)
	defer end()
	watched, err := s.watch(watching)
	if err != nil {
		return nil, err
	}
	if _, err := s.TakeJournal(ctx); err != nil {
		return nil, err
	}
	for _, name := range modules {
		if err := s.upgrade(ctx, name); err != nil {
			return nil, err
		}
	}
	starved := s.await(ctx, nodes, "2")
	end()
	<-watched
	calls, err := s.TakeJournal(ctx)
	if err != nil {
		return nil, err
	}
	var without []gap
	for node, of := range calls {
		last := map[string]time.Time{}
		for _, c := range of {
			switch c.Call {
			case "delete_module":
				last[c.Module] = c.Time
			case "finit_module":
				without = append(without, gap{s.pool[node], node, last[c.Module], c.Time})
			}
		}
	}
	r := &result{Nodes: nodes, Modules: len(modules), Pools: pools, Limit: limit, Starved: starved, MostCordoned: s.mostCordoned,
		MostWithout: together(without)}
	all := 0
	for _, n := range s.drains {
		all, r.MostDrains = all+n, max(r.MostDrains, n)
	}
	r.DrainsPerNode = math.Round(100*float64(all)/float64(nodes)) / 100
	r.OverBudget = max(r.MostCordoned-limit, r.MostWithout-limit, 0)
	return r, nil
}

// label puts each node into a pool.
func (s *scene) label(ctx context.Context) error {
	var list corev1.NodeList
	if err := s.Admin.List(ctx, &list); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	for i := range list.Items {
		n := &list.Items[i]
		s.pool[n.Name] = fmt.Sprintf("pool-%d", i%pools)
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, poolLabel, s.pool[n.Name])
		if err := s.Admin.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return fmt.Errorf("label %s: %w", n.Name, err)
		}
	}
	return nil
}

func module(name string) *v1beta1.Module {
	atMost := intstr.FromInt32(most)
	return &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"drover.dev/hollow": "true"},
			Rollout: &v1beta1.RolloutSpec{MaxUnavailable: &atMost, Soak: &metav1.Duration{Duration: 15 * time.Second},
				Drain: v1beta1.DrainNode},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: name},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: image(name, "1")}},
			}},
		},
	}
}

func image(name, version string) string {
	return "registry.example.com/default/" + name + ":" + version + "-${KERNEL_FULL_VERSION}"
}

func (s *scene) upgrade(ctx context.Context, name string) error {
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/moduleLoader/container/kernelMappings/0/containerImage","value":%q}]`, image(name, "2"))
	if err := s.Admin.Patch(ctx, m, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		return fmt.Errorf("change Module %s: %w", name, err)
	}
	return nil
}

// await returns how many Modules are not live everywhere, as they are asked for in that version, in
// time.
func (s *scene) await(ctx context.Context, nodes int, version string) (left int) {
	said := time.Now()
	left = len(modules) // until the API server has said otherwise
	_ = wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var list v1beta1.NodeModulesConfigList
		if err := s.Admin.List(ctx, &list); err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		live := map[string]int{}
		for i := range list.Items {
			for _, m := range list.Items[i].Status.Modules {
				if m.Config != nil && strings.Contains(m.Config.ContainerImage, "/"+m.Name+":"+version+"-") {
					live[m.Name]++
				}
			}
		}
		left = 0
		for _, name := range modules {
			if live[name] < nodes {
				left++
			}
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			s.say("version %s is live on %v of %d nodes", version, live, nodes)
		}
		return left == 0, nil
	})
	return left
}

// watch counts cordons until the context ends.
func (s *scene) watch(ctx context.Context) (ended <-chan struct{}, err error) {
	c, err := client.NewWithWatch(s.AdminConfig, client.Options{Scheme: s.Admin.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	w, err := c.Watch(ctx, &corev1.NodeList{})
	if err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Stop()
		for {
			select {
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				if n, ok := e.Object.(*corev1.Node); ok {
					s.see(n)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return done, nil
}

func (s *scene) see(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Spec.Unschedulable && !s.cordoned[n.Name] {
		s.drains[n.Name]++
	}
	s.cordoned[n.Name] = n.Spec.Unschedulable
	count := map[string]int{}
	for name, is := range s.cordoned {
		if is {
			count[s.pool[name]]++
		}
	}
	for _, n := range count {
		s.mostCordoned = max(s.mostCordoned, n)
	}
}

// gap is the time in which a node was without a kernel module.
type gap struct {
	pool, node string
	from, to   time.Time
}

// together is the greatest number of nodes of a pool that were without a kernel module at a time.
func together(gaps []gap) (most int) {
	slices.SortFunc(gaps, func(a, b gap) int { return a.from.Compare(b.from) })
	for _, a := range gaps {
		nodes := map[string]bool{}
		for _, b := range gaps {
			if b.pool == a.pool && !b.from.After(a.from) && b.to.After(a.from) {
				nodes[b.node] = true
			}
		}
		most = max(most, len(nodes))
	}
	return most
}
