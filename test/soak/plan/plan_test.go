// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/drover-project/drover/test/soak/plan"
)

var tenMinutes = plan.Options{Rounds: 11, Nodes: 300, Modules: 5, Kernels: 2, Storm: 15 * time.Second}

// TestSeed: a seed repeats its plan, and another makes another.
func TestSeed(t *testing.T) {
	digests := map[string]bool{}
	for seed := range uint64(20) {
		o := tenMinutes
		o.Seed = seed
		a, b := plan.Make(o), plan.Make(o)
		if !reflect.DeepEqual(a, b) || a.Digest() != b.Digest() {
			t.Errorf("seed %d makes two plans", seed)
		}
		digests[a.Digest()] = true
	}
	if len(digests) != 20 {
		t.Errorf("20 seeds make %d plans", len(digests))
	}
}

// TestMake: in ten minutes each kind happens, within its storm, to nodes and Modules that there
// are, and the operator lives through the second half.
func TestMake(t *testing.T) {
	for seed := range uint64(100) {
		o := tenMinutes
		o.Seed = seed
		p := plan.Make(o)
		counts := p.Counts()
		for _, kind := range plan.Kinds {
			if counts[kind] == 0 {
				t.Errorf("seed %d: no %s", seed, kind)
			}
		}
		for round, storm := range p {
			for _, e := range storm {
				check(t, o, round, e)
			}
		}
	}
}

func check(t *testing.T, o plan.Options, round int, e plan.Event) {
	t.Helper()
	if e.At < 0 || e.For < 0 || e.At+e.For >= o.Storm || e.Module < 0 || e.Module >= o.Modules {
		t.Errorf("seed %d: %+v", o.Seed, e)
	}
	for _, n := range append(e.Nodes, e.Boot...) {
		if n < 0 || n >= o.Nodes {
			t.Errorf("seed %d: %+v", o.Seed, e)
		}
	}
	if e.Kind == plan.OperatorKill && round > o.Rounds/2 {
		t.Errorf("seed %d: the operator is killed in round %d of %d", o.Seed, round, o.Rounds)
	}
	if e.Kind == plan.Kernel && e.Value >= o.Kernels {
		t.Errorf("seed %d: %+v", o.Seed, e)
	}
}

// TestOneMinute: a short and small run has all kinds, too.
func TestOneMinute(t *testing.T) {
	for seed := range uint64(100) {
		p := plan.Make(plan.Options{Seed: seed, Rounds: 2, Nodes: 3, Modules: 1, Kernels: 1, Storm: 15 * time.Second})
		if counts := p.Counts(); len(p) != 2 || len(counts) != len(plan.Kinds) {
			t.Errorf("seed %d: %v", seed, counts)
		}
	}
}
