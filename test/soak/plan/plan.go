// SPDX-License-Identifier: Apache-2.0

// Package plan makes what happens in a soak from a seed. It is pure: the same seed, number of
// rounds, nodes and Modules make the same plan.
package plan

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is what can happen.
type Kind string

const (
	// Reboot some nodes, with the same kernel.
	Reboot Kind = "reboot"
	// Kernel reboots some nodes into another kernel.
	Kernel Kind = "kernel"
	// AgentRestart ends some nodes' agents in order, and starts them again.
	AgentRestart Kind = "agentRestart"
	// AgentKill kills some nodes' agents at their next call to the kernel.
	AgentKill Kind = "agentKill"
	// OperatorKill kills the operator, and starts it again.
	OperatorKill Kind = "operatorKill"
	// APIRestart takes the API server away for a while.
	APIRestart Kind = "apiRestart"
	// Throttle has the API server answer 429 to Drover for a while.
	Throttle Kind = "throttle"
	// Registry refuses the images of a Module for a while.
	Registry Kind = "registry"
	// FullDisk leaves some agents no room to write for a while; some more, in turn, boot with a full
	// disk. Each such boot looks as if the last load had ended it, and a few on one node as if its
	// module did.
	FullDisk Kind = "fullDisk"
	// Clock makes some agents' clocks wrong, until another step. They begin again.
	Clock Kind = "clock"
	// Image gives a Module another version.
	Image Kind = "image"
	// Params gives a Module another parameter.
	Params Kind = "params"
	// Selector has a Module select fewer nodes, or more.
	Selector Kind = "selector"
	// Labels are put on some nodes and taken off others, so that a Module selects others.
	Labels Kind = "labels"
	// OtherLabels are put on many nodes again and again; no Module looks at them.
	OtherLabels Kind = "otherLabels"
)

// Kinds are all of them.
var Kinds = []Kind{Reboot, Kernel, AgentRestart, AgentKill, OperatorKill, APIRestart, Throttle, Registry, FullDisk, Clock, Image, Params,
	Selector, Labels, OtherLabels}

// Event is one thing that happens.
type Event struct {
	// At is when, from the storm's beginning on, and For how long.
	At, For time.Duration
	Kind    Kind
	// Nodes are the numbers of those that it happens to.
	Nodes []int
	// Boot are more of them, which boot then.
	Boot []int
	// Module is the number of the Module that it happens to.
	Module int
	// Value is the number of the kernel, or one that no other event has: the version, label or
	// parameter from now on. An odd one refuses some requests, an even one all.
	Value int
	// Step is how wrong the clock is from now on.
	Step time.Duration
}

// Options say how large a plan is.
type Options struct {
	Seed                   uint64
	Rounds, Nodes, Modules int
	// Kernels is how many kernels nodes can boot.
	Kernels int
	// Storm is how long a storm lasts.
	Storm time.Duration
}

// ends is how long before a storm's end all that lasts for a while is over.
const ends = time.Second

// Plan is the storms, in order. After each, all must become well again.
type Plan [][]Event

// Make makes the plan. Each storm has some kinds, and each kind comes again within a few storms.
// The operator is not killed in the second half, so that its growth can be seen.
func Make(o Options) Plan {
	m := &maker{Options: o, random: rand.New(rand.NewPCG(o.Seed, 1))} //nolint:gosec // to be repeated
	var plan Plan
	last := (o.Rounds - 1) / 2
	for round := range o.Rounds {
		m.killing = round <= last
		plan = append(plan, m.storm())
		if round == last && plan.Counts()[OperatorKill] == 0 {
			plan[last] = append(plan[last], m.event(OperatorKill)) // its turn comes too late otherwise
		}
	}
	return plan
}

type maker struct {
	Options
	random  *rand.Rand
	killing bool
	// deck are the kinds that are yet to come before any comes again.
	deck []Kind
	edit int
	// turn are the nodes that are yet to boot with a full disk before any does again.
	turn []int
}

// perStorm is how many kinds a storm has.
const perStorm = 8

func (m *maker) storm() []Event {
	var storm []Event
	for range perStorm {
		kind := m.draw()
		if kind == OperatorKill {
			if !m.killing {
				continue
			}
			for range 1 + m.random.IntN(3) {
				storm = append(storm, m.event(kind))
			}
			continue
		}
		storm = append(storm, m.event(kind))
	}
	slices.SortStableFunc(storm, func(a, b Event) int { return int(a.At - b.At) })
	return storm
}

// draw takes a kind; none comes twice before all have come.
func (m *maker) draw() Kind {
	if len(m.deck) == 0 {
		m.deck = slices.Clone(Kinds)
		m.random.Shuffle(len(m.deck), func(i, j int) { m.deck[i], m.deck[j] = m.deck[j], m.deck[i] })
	}
	kind := m.deck[0]
	m.deck = m.deck[1:]
	return kind
}

// steps are how wrong a clock may be: more and less than what the agent waits for.
var steps = []time.Duration{-2 * time.Hour, -7 * time.Minute, -20 * time.Second, 0, 20 * time.Second, 7 * time.Minute, 3 * time.Hour}

func (m *maker) event(kind Kind) Event {
	e := Event{Kind: kind, At: time.Duration(m.random.Int64N(int64(m.Storm * 2 / 3))).Round(time.Millisecond)}
	e.Module = m.random.IntN(m.Modules)
	switch kind {
	case Reboot, AgentRestart, AgentKill, Clock, Labels:
		e.Nodes = m.some(5, 15)
	case Kernel:
		e.Nodes, e.Value = m.some(2, 8), m.random.IntN(m.Kernels)
	case FullDisk:
		e.Nodes, e.Boot = m.some(10, 25), m.turns()
	case OtherLabels:
		e.Nodes = m.some(30, 60)
	}
	if kind == Clock {
		e.Step = steps[m.random.IntN(len(steps))]
	}
	if kind != Kernel {
		m.edit += 1 + m.random.IntN(2)
		e.Value = m.edit
	}
	if left := m.Storm - ends - e.At; kind == APIRestart || kind == Throttle || kind == Registry || kind == FullDisk {
		e.For = min(left, time.Second+time.Duration(m.random.Int64N(int64(m.Storm/3)))).Round(time.Millisecond)
	}
	return e
}

// turns are a few nodes, none of which comes again before all have come.
func (m *maker) turns() []int {
	if len(m.turn) == 0 {
		m.turn = m.random.Perm(m.Nodes)
	}
	n := min(len(m.turn), max(1, m.Nodes*8/100))
	nodes := m.turn[:n]
	m.turn = m.turn[n:]
	return nodes
}

// some nodes, at least one, between two percentages of all.
func (m *maker) some(least, most int) []int {
	n := max(1, m.Nodes*(least+m.random.IntN(most-least+1))/100)
	nodes := m.random.Perm(m.Nodes)[:n]
	slices.Sort(nodes)
	return nodes
}

// Counts says how often each kind happens.
func (p Plan) Counts() map[Kind]int {
	counts := map[Kind]int{}
	for _, storm := range p {
		for _, e := range storm {
			counts[e.Kind]++
		}
	}
	return counts
}

// Digest tells plans apart.
func (p Plan) Digest() string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%+v", p) // a hash takes everything
	return fmt.Sprintf("%016x", h.Sum64())
}
