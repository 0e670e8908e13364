// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/shared/rollout"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

const zone = "example.com/zone"

// fleet is a played cluster: each Module has a build on each node, and changes it where its plan
// says so.
type fleet struct {
	budget *budget.Budget
	now    time.Time
	nodes  []*corev1.Node
	// parts are the Modules' nodes.
	parts map[string][]rollout.Node
	most  int // a Module's maxUnavailable
	soak  time.Duration
	quiet bool // one Module is not heard of
	// refused is the Module whose orders the API server refuses.
	refused string
}

func newFleet(limit budget.Limit, zones, perZone int, modules ...string) *fleet {
	f := &fleet{budget: budget.New(limit, noon.Add(-time.Hour)), now: noon, parts: map[string][]rollout.Node{}, most: 1}
	for z := range zones {
		for i := range perZone {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("z%d-n%02d", z, i), Labels: map[string]string{zone: fmt.Sprint(z)}}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			f.nodes = append(f.nodes, n)
			for _, m := range modules {
				f.parts[m] = append(f.parts[m], rollout.Node{Name: n.Name, Stage: rollout.Behind, Ready: true, Serving: true, Held: true})
			}
		}
	}
	return f
}

func key(module string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: module}
}

func (f *fleet) keys() (all []types.NamespacedName) {
	for _, m := range slices.Sorted(maps.Keys(f.parts)) {
		all = append(all, key(m))
	}
	return all
}

// pass makes a Module's plan, and gives the nodes that may begin their order.
func (f *fleet) pass(module string) *rollout.Plan {
	parts := f.parts[module]
	p := f.budget.Plan(budget.Pass{Module: key(module), Modules: f.keys(), Nodes: f.nodes, Parts: slices.Clone(parts),
		Policy: rollout.Policy{MaxUnavailable: intstr.FromInt(f.most), Soak: f.soak, PauseOnFailure: true}, Now: f.now})
	for i := range parts {
		if p.Start[parts[i].Name] && module != f.refused {
			parts[i].Stage = rollout.Given
		}
	}
	return p
}

// under are the nodes where a Module's change is under way.
func (f *fleet) under(module string) (all []string) {
	for _, n := range f.parts[module] {
		if n.Stage == rollout.Given && n.Since.IsZero() {
			all = append(all, n.Name)
		}
	}
	return all
}

// loads ends the change on a node, for one Module.
func (f *fleet) loads(module, node string) {
	for i := range f.parts[module] {
		if n := &f.parts[module][i]; n.Name == node {
			n.Since = f.now
		}
	}
}

// hangs lets time go by in which a Module's change does not come about on its first node. The other
// Module cannot change there.
func (f *fleet) hangs(module string, long time.Duration) {
	f.parts["nic"][0].Paused = true
	for range long / (10 * time.Second) {
		f.pass(module)
		f.now = f.now.Add(10 * time.Second)
	}
	f.pass(module)
}

// unavailable are the nodes that any Module changes, by pool.
func (f *fleet) unavailable() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for m := range f.parts {
		for _, name := range f.under(m) {
			pool, _, _ := strings.Cut(name, "-")
			if all[pool] == nil {
				all[pool] = map[string]bool{}
			}
			all[pool][name] = true
		}
	}
	return all
}

// TestModulesShareNodes: three Modules are changed together, and go on with one node of each pool
// until all have what they should, on the same node where they can.
func TestModulesShareNodes(t *testing.T) {
	modules := []string{"gpu", "nic", "storage"}
	f := newFleet(budget.Limit{Nodes: "1", PoolLabel: zone}, 2, 5, modules...)
	f.most = 3
	visits := map[string]int{}
	was := map[string]bool{}
	for round := 0; ; round++ {
		if round == 200 {
			t.Fatalf("after %d rounds, %v are under way", round, f.unavailable())
		}
		for _, m := range modules {
			f.pass(m)
		}
		is := map[string]bool{}
		for pool, nodes := range f.unavailable() {
			if len(nodes) > 1 {
				t.Fatalf("%v of pool %s at a time", slices.Sorted(maps.Keys(nodes)), pool)
			}
			maps.Copy(is, nodes)
		}
		for name := range is {
			if !was[name] {
				visits[name]++
			}
		}
		if was = is; len(is) == 0 {
			break
		}
		f.now = f.now.Add(10 * time.Second)
		for _, m := range modules { // one Module's change takes longer than another's
			if slices.Index(modules, m) == round%len(modules) {
				for _, name := range f.under(m) {
					f.loads(m, name)
				}
			}
		}
	}
	for _, n := range f.nodes {
		if visits[n.Name] != 1 {
			t.Errorf("%s was unavailable %d times, want once for all Modules", n.Name, visits[n.Name])
		}
	}
}

func TestPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		limit budget.Limit
		given func(*fleet)
		want  []string // the nodes that the Module nic begins with
		wait  []string // those that wait for a place
	}{
		"without a limit": {given: func(f *fleet) { f.pass("gpu") }, want: []string{"z0-n00"}},
		"another Module has the place, and its node": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"][0].Paused = true
			f.pass("gpu")
		}, want: []string{"z0-n01"}},
		"each pool has places of its own": {limit: budget.Limit{Nodes: "1", PoolLabel: zone}, given: func(f *fleet) {
			f.pass("gpu")
			f.parts["nic"][0].Paused = true
		}, want: []string{"z1-n00"}, wait: []string{"z0-n01", "z0-n02", "z0-n03"}},
		"a percentage is rounded down": {limit: budget.Limit{Nodes: "49%", PoolLabel: zone}, given: func(f *fleet) {
			f.pass("gpu")
			f.parts["nic"][0].Paused = true
			f.most = 10
		}, want: []string{"z1-n00"}, wait: []string{"z0-n01", "z0-n02", "z0-n03", "z1-n01", "z1-n02", "z1-n03"}},
		"a node that is not Ready has a place, whatever Modules it has": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.nodes[7].Status.Conditions = nil
			for m := range f.parts {
				f.parts[m] = f.parts[m][:4]
			}
		}, wait: []string{"z0-n00", "z0-n01", "z0-n02", "z0-n03"}},
		"a failed node has none": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.pass("gpu")
			f.parts["gpu"][0].Failed = "LoadFailed"
			f.pass("gpu")
			f.parts["nic"][0].Paused = true
		}, want: []string{"z0-n01"}},
		"first loads have none": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			for i := range f.parts["gpu"] {
				f.parts["gpu"][i] = rollout.Node{Name: f.nodes[i].Name, Stage: rollout.Given, Ready: true}
			}
			f.pass("gpu")
			f.most = 2
		}, want: []string{"z0-n00"}, wait: all(2, 4)[1:]},
		"a node that is made ready for its turn has one": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"][0].Begun, f.parts["gpu"][0].Held = true, false
			f.pass("gpu")
			f.parts["nic"][0].Paused = true
		}, wait: all(2, 4)[1:]},
		"but one of the Module itself, not two": {limit: budget.Limit{Nodes: "2"}, given: func(f *fleet) {
			f.parts["nic"][0].Begun = true
			f.most = 3
		}, want: []string{"z0-n00", "z0-n01"}, wait: all(2, 4)[2:]},
		"a reload has one while nothing is live": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.pass("gpu")
			f.parts["gpu"][0].Serving = false
			f.pass("gpu")
			f.parts["nic"][0].Paused = true
		}, wait: all(2, 4)[1:]},
		"a change that does not come about has one": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.hangs("gpu", 9*time.Minute)
		}, wait: all(2, 4)[1:]},
		"but not for ever": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.hangs("gpu", 11*time.Minute)
		}, want: []string{"z0-n01"}},
		"a change that soaks has one for as long as that takes": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.soak = time.Hour
			f.pass("gpu")
			f.loads("gpu", "z0-n00")
			f.hangs("gpu", 30*time.Minute)
		}, wait: all(2, 4)[1:]},
		"a node that is being drained has one until its turn has passed": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"][0].Begun, f.parts["gpu"][0].Held = true, false
			f.hangs("gpu", time.Hour)
		}, wait: all(2, 4)[1:]},
		"an order that a webhook refuses has none for ever either": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.refused = "gpu"
			f.hangs("gpu", 10*time.Minute)
		}, want: []string{"z0-n01"}},
		"and comes about later, with a place": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.refused = "gpu"
			f.hangs("gpu", 10*time.Minute)
			f.refused = ""
			f.pass("gpu")
			f.pass("gpu")
		}, wait: all(2, 4)[1:]},
		"a node that was kept for another Module has none for long": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"] = f.parts["gpu"][:1]
			f.pass("gpu")
			f.loads("gpu", "z0-n00")
			f.parts["nic"][0].Held = false
			f.pass("nic") // is about to change there
			f.pass("gpu") // keeps the node for it, and has nothing else to do
			f.parts["nic"][0] = rollout.Node{Name: "z0-n00", Stage: rollout.Given, Ready: true, Serving: true, Since: f.now}
			f.now = f.now.Add(rollout.JoinTime)
		}, want: []string{"z0-n01"}},
		"a node that drops a change has one until it is told so": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"] = []rollout.Node{{Name: "z0-n00", Ready: true, Serving: true, Reverted: true, Changing: true}}
			f.pass("gpu")
			f.parts["nic"][0].Paused = true
		}, wait: all(2, 4)[1:]},
		"a Module that is gone has none": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.pass("gpu")
			f.budget.Forget(key("gpu"))
			f.parts["nic"][0].Paused = true
		}, want: []string{"z0-n01"}},
		"a new process waits for what it has not looked at": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.budget = budget.New(budget.Limit{Nodes: "1"}, noon)
		}, wait: all(2, 4)},
		"but not for long": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.budget = budget.New(budget.Limit{Nodes: "1"}, noon.Add(-time.Minute))
		}, want: []string{"z0-n00"}},
		"nor until its clock is where it began, if that went back": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.budget = budget.New(budget.Limit{Nodes: "1"}, noon.Add(time.Hour))
		}, want: []string{"z0-n00"}},
		"a Module that waits longer gets the next place": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"][0].Paused = true
			f.pass("nic")
			f.pass("gpu") // waits
			f.now = f.now.Add(10 * time.Second)
			f.loads("nic", "z0-n00")
		}, wait: all(2, 4)[1:]},
		"but not one of which nothing is heard": {limit: budget.Limit{Nodes: "1"}, given: func(f *fleet) {
			f.parts["gpu"][0].Paused = true
			f.pass("nic")
			f.pass("gpu")
			f.now = f.now.Add(time.Minute)
			f.loads("nic", "z0-n00")
		}, want: []string{"z0-n01"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(test.limit, 2, 4, "gpu", "nic")
			test.given(f)
			p := f.pass("nic")
			if got := slices.Sorted(maps.Keys(p.Start)); !slices.Equal(got, test.want) {
				t.Errorf("begins with %q, want %q", got, test.want)
			}
			if !slices.Equal(p.Crowded, test.wait) {
				t.Errorf("%q wait for a place, want %q", p.Crowded, test.wait)
			}
		})
	}
}

func all(zones, perZone int) (names []string) {
	for _, n := range newFleet(budget.Limit{}, zones, perZone).nodes {
		names = append(names, n.Name)
	}
	return names
}

// TestTellTakesNothing: the status asks for the plan, too.
func TestTellTakesNothing(t *testing.T) {
	f := newFleet(budget.Limit{Nodes: "1"}, 1, 3, "gpu", "nic")
	f.pass("gpu")
	told := f.budget.Tell(budget.Pass{Module: key("nic"), Modules: f.keys(), Nodes: f.nodes, Parts: slices.Clone(f.parts["nic"]),
		Policy: rollout.Policy{MaxUnavailable: intstr.FromInt(1)}, Now: f.now})
	if p := f.pass("nic"); !maps.Equal(told.Start, p.Start) || len(p.Start) != 1 {
		t.Errorf("told %v, done %v", told.Start, p.Start)
	}
}

// TestANewProcessTells: of one Module it knows nothing yet.
func TestANewProcessTells(t *testing.T) {
	f := newFleet(budget.Limit{Nodes: "2"}, 1, 3, "fs", "gpu", "nic")
	f.budget = budget.New(budget.Limit{Nodes: "2"}, noon)
	f.parts["gpu"][0].Begun, f.parts["nic"][0].Held = true, false
	f.pass("gpu")
	f.pass("nic")
	f.parts["gpu"][0] = rollout.Node{Name: "z0-n00", Stage: rollout.Given, Ready: true, Serving: true, Since: f.now}
	told := f.budget.Tell(budget.Pass{Module: key("gpu"), Modules: f.keys(), Nodes: f.nodes, Parts: slices.Clone(f.parts["gpu"]),
		Policy: rollout.Policy{MaxUnavailable: intstr.FromInt(1)}, Now: f.now})
	if told.Awaited["z0-n00"].IsZero() {
		t.Errorf("the node is not kept for the Module that is about to change there: %+v", told)
	}
}

// TestANodeWaitsForOtherModules: a node that has one Module's change stays out of service, for a
// while, for another that is about to change there.
func TestANodeWaitsForOtherModules(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*fleet)
		want  bool
	}{
		"it has a place, and waits for the image": {given: func(f *fleet) { f.parts["nic"][0].Held = false }, want: true},
		"it has none before its own nodes have soaked": {given: func(f *fleet) {
			f.parts["nic"][2] = rollout.Node{Name: "z0-n02", Stage: rollout.Given, Ready: true, Serving: true, Since: f.now}
			f.soak = 10 * time.Second
		}, want: true},
		"which take longer": {given: func(f *fleet) {
			f.parts["nic"][2] = rollout.Node{Name: "z0-n02", Stage: rollout.Given, Ready: true, Serving: true, Since: f.now}
			f.soak = time.Hour
		}},
		"it is paused there": {given: func(f *fleet) { f.parts["nic"][0].Paused = true }},
		"it has failed":      {given: func(f *fleet) { f.parts["nic"][1].Stage, f.parts["nic"][1].Failed = rollout.Given, "LoadFailed" }},
		"for no longer than a while": {given: func(f *fleet) {
			f.parts["nic"][0].Held = false
			f.parts["gpu"][0].Since = f.now.Add(-rollout.JoinTime)
		}},
		"nothing is heard of it": {given: func(f *fleet) {
			f.parts["nic"][0].Held = false
			f.quiet = true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(budget.Limit{Nodes: "2"}, 1, 3, "gpu", "nic")
			f.pass("gpu")
			f.loads("gpu", "z0-n00")
			test.given(f)
			f.pass("nic")
			if f.quiet {
				f.now = f.now.Add(time.Minute)
				f.loads("gpu", "z0-n00")
			}
			if until := f.pass("gpu").Awaited["z0-n00"]; until.IsZero() == test.want {
				t.Errorf("awaited until %v, want %t", until, test.want)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	for text, fine := range map[string]bool{"": true, "1": true, "10%": true, "100%": true,
		"0": false, "0%": false, "-1": false, "101%": false, "ten": false, "1.5": false} {
		err := budget.Limit{Nodes: text}.Check()
		if (err == nil) != fine || err != nil && (!errors.Is(err, budget.ErrLimit) || !strings.Contains(err.Error(), text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := (budget.Limit{PoolLabel: zone}).Check(); err == nil {
		t.Error("pools without a limit are taken")
	}
}
