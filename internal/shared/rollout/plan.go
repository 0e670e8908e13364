// SPDX-License-Identifier: Apache-2.0

// Package rollout chooses which nodes may change now. It is pure: nodes as their NodeModulesConfigs
// show them, a policy and the time in, an answer out. A restarted operator gives the same answers,
// except for the times at which it saw changes live: [Sightings].
//
//	behind ──► delivered ahead ──► given the order ──► live ──► live for the soak time
//	  │                                 └── takes one of maxUnavailable's places ──┘
//	  └── waits: for a place, for the first node's proof, for the image, or as long as the rollout is paused
//
// Only nodes that have something to lose wait here, be it an in-tree module that the order takes
// out. Any other first load waits for its image, and for the end of spec.rollout.paused, alone.
package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Plan is what may happen now.
type Plan struct {
	// Start are the nodes that may be given their order now, to load or to unload.
	Start map[string]bool
	// Hold are the nodes that should change and keep what they have for now.
	Hold map[string]bool
	// Deliver are the nodes to bring the image to ahead of their turn.
	Deliver map[string]bool
	// Total are the Module's nodes, Limit may be unavailable, and Unavailable are.
	Total, Limit, Unavailable int
	// Done nodes have what is rolled out, Underway ones have the order for it, Waiting ones do not.
	Done, Underway, Waiting int
	// Going nodes are no longer selected, and keep a place until they have carried out their order.
	// Out nodes were told to unload by a taint, and keep one until it goes.
	Going, Out []string
	// Failed are the names of nodes that failed, in order, and Reason why the first did.
	Failed []string
	Reason string
	// Away are waiting nodes that are not Ready.
	Away int
	// Open are the nodes where the change is under way, or begins now, for the pools' other Modules.
	Open map[string]Visit
	// Crowded are nodes that wait because their pools have no place left.
	Crowded []string
	// Next are the nodes that have a place, and wait for the image. Spare more of those in Line, in
	// order, could have one where they are unavailable for another Module already.
	Next, Line []string
	Spare      int
	// Awaited are nodes with the change, and until when other Modules that are about to change there,
	// too, are waited for before the node takes pods again.
	Awaited map[string]time.Time
	// Trial: of some build, the first node has to prove it before others get it. Lost is one that went
	// away before it had the change, which may be why.
	Trial bool
	Lost  string
	// Halt is why no further node is begun with; zero: nothing.
	Halt Halt
	// Mass are deselected or tainted nodes that are too many to go without a confirmation.
	Mass []string
	// Confirmation is one for Mass that is not from the last hour; zero: there is none.
	Confirmation time.Time
	// Again is when the answer changes without an event; zero: never.
	Again time.Time
}

// Halt is why a rollout stands still.
type Halt string

const (
	// HaltPaused by the policy.
	HaltPaused Halt = "paused"
	// HaltFailed as a node failed.
	HaltFailed Halt = "failed"
)

// Make answers for one Module.
func Make(nodes []Node, policy Policy, now time.Time) *Plan {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	p := &Plan{Start: map[string]bool{}, Hold: map[string]bool{}, Deliver: map[string]bool{}, Total: len(nodes),
		Open: map[string]Visit{}}
	p.Limit = policy.limit(len(nodes))
	m := &maker{Plan: p, policy: policy, now: now, pools: maps.Clone(policy.Pools), taken: map[string]bool{},
		waiting: map[string]bool{}, proven: map[string]bool{}, trying: map[string]bool{}}
	for i := range nodes {
		m.count(&nodes[i])
	}
	slices.SortStableFunc(m.line, func(a, b *Node) int {
		return cmp.Or(order(a)-order(b), a.Passed.Compare(b.Passed))
	})
	m.unload()
	m.halt()
	m.load()
	m.reload()
	for i := range nodes {
		if n := &nodes[i]; !p.Start[n.Name] && (n.Stage == Behind || n.Stage == Leaving) {
			p.Hold[n.Name] = true
		}
	}
	m.opens(nodes)
	return p
}

// maker makes one plan.
type maker struct {
	*Plan
	policy Policy
	now    time.Time
	// line are nodes that can begin, leaving those that can unload, at once those that need no place.
	line, leaving, atOnce []*Node
	// pools are the places left in each pool; nil: any number.
	pools map[string]int
	taken map[string]bool // nodes that have been given a place
	soon  int             // nodes that soak, and free a place within JoinTime
	// waiting are builds that nodes wait for, proven those that have soaked, trying those on trial.
	waiting, proven, trying map[string]bool
}

// order puts nodes that have begun first, then those that are unavailable for another Module, and
// those without an image, or that missed a turn, last.
func order(n *Node) int {
	switch {
	case n.Begun:
		return -2
	case n.Late && !n.Held || !n.Passed.IsZero():
		return 1
	case n.Visited:
		return -1
	}
	return 0
}

// count takes one node into account.
func (m *maker) count(n *Node) {
	if m.unavailable(n) {
		m.Unavailable++
	}
	if m.open(n) {
		m.occupy(n)
	}
	switch n.Stage {
	case Fresh, AtBoot:
		if !n.Paused {
			m.atOnce = append(m.atOnce, n)
		}
	case Behind:
		m.Waiting++
		m.waiting[n.Build] = true
		if !n.Ready {
			m.Away++
		} else if !n.Paused && (n.Serving || n.Stuck) {
			m.line = append(m.line, n)
		}
	case Given:
		m.given(n)
	case Leaving:
		m.leaving = append(m.leaving, n)
	case Going, Out:
		if n.Tainted {
			m.Out = append(m.Out, n.Name)
		} else {
			m.Going = append(m.Going, n.Name)
		}
	}
}

func (m *maker) given(n *Node) {
	switch {
	case n.Failed != "":
		m.Failed = append(m.Failed, n.Name)
		if m.Reason == "" {
			m.Reason = n.Failed
		}
	case !n.Since.IsZero() && n.Ready && m.soaked(n):
		m.Done++
		m.proven[n.Build] = true
	case n.Rests:
		m.Underway++
	default:
		m.Underway++
		m.trying[n.Build] = true
		if !n.Since.IsZero() && n.Ready && m.now.Add(JoinTime).After(n.Since.Add(m.policy.Soak)) {
			m.soon++
		}
		if !n.Ready && (m.Lost == "" || n.Name < m.Lost) {
			m.Lost = n.Name
		}
	}
}

// soaked reports whether a node has held the change for long enough, and notes when it will have.
func (m *maker) soaked(n *Node) bool {
	at := n.Since.Add(m.policy.Soak)
	if m.policy.Soak <= 0 || !m.now.Before(at) {
		return true
	}
	m.again(at)
	return false
}

func (m *maker) again(at time.Time) {
	if m.Again.IsZero() || at.Before(m.Again) {
		m.Again = at
	}
}

// unavailable reports whether a node is one of those that maxUnavailable bounds.
func (m *maker) unavailable(n *Node) bool {
	switch n.Stage {
	case Behind, Leaving:
		return !n.Ready || !n.Serving || n.Changing
	case Given:
		return !n.Ready || n.Failed != "" || !n.Rests && (n.Since.IsZero() || !m.soaked(n))
	case Going, Out:
		return true
	case Fresh, AtBoot:
		return n.Lost || !n.Ready || n.Changing
	}
	return false
}

// places are how many more nodes may become unavailable.
func (m *maker) places() int { return max(m.Limit-m.Unavailable, 0) }

// unload lets nodes go that are no longer selected. What takes nothing away needs no place, and no
// tainted node does: whoever put the taint on has a budget. But more than the limit, with those
// that are out, are a slip until somebody confirms them.
func (m *maker) unload() {
	var mass, told []string
	var lose []*Node
	for _, n := range m.leaving {
		if n.Serving {
			mass = append(mass, n.Name)
		}
		switch {
		case n.Later || n.Paused:
		case !n.Serving || n.Changing:
			m.Start[n.Name] = true
		case n.Tainted:
			told = append(told, n.Name)
		default:
			lose = append(lose, n)
		}
	}
	confirmed := m.policy.confirmed(m.now)
	switch {
	case len(mass) > m.Limit && !confirmed:
		m.ask(mass)
		return
	case len(told) > 0 && len(told)+len(m.Out) > m.Limit && !confirmed:
		m.ask(told)
	default:
		for _, name := range told {
			m.Start[name] = true
			m.Unavailable++
		}
	}
	for _, n := range lose {
		if !confirmed && (m.places() == 0 || !m.room(n)) {
			continue
		}
		m.Start[n.Name] = true
		m.take(n)
		m.Unavailable++
	}
}

// ask holds nodes until somebody confirms that so many may go.
func (m *maker) ask(mass []string) {
	m.Mass, m.Confirmation = mass, m.policy.Confirmed
	if at := m.policy.Confirmed; at.After(m.now) {
		m.again(at)
	}
}

// halt finds out whether the rollout stands still.
func (m *maker) halt() {
	switch {
	case m.policy.Paused:
		m.Halt = HaltPaused
	case m.policy.PauseOnFailure && len(m.Failed) > 0:
		m.Halt = HaltFailed
	}
	for build := range m.waiting {
		m.Trial = m.Trial || m.unproven(build)
	}
}

// unproven reports whether nodes wait for a first one that proves their build.
func (m *maker) unproven(build string) bool { return m.policy.Trial && !m.proven[build] }

// load gives orders that need no place. A pause holds first loads and changes for the next boot, a
// failure the second: a build that fails at a boot fails at the next. What a boot took away from a
// node comes back, and nothing holds an order for what is live: the one before would take it out.
func (m *maker) load() {
	for _, n := range m.atOnce {
		if m.Halt == "" || n.Lost || n.Reverted || n.Stage == Fresh && m.Halt == HaltFailed {
			m.Start[n.Name] = true
		} else {
			m.Hold[n.Name], m.Waiting = true, m.Waiting+1
		}
	}
}

// reload begins with the next nodes, all of which must have the image by then. The first node of a
// build is a step of its own. The first of all begins alone: a fault of the change itself is on
// every kernel. A failure halts what may lose something by it: a node that has nothing, and gets
// nothing under the order that it has, gets the newest, as a new node does.
func (m *maker) reload() {
	if m.Halt == HaltFailed {
		m.begin(slices.DeleteFunc(m.line, func(n *Node) bool { return !n.Stuck }))
	}
	if m.Halt != "" {
		return
	}
	places, ahead := m.places(), m.Limit
	first, second := map[string]bool{}, map[string]bool{}
	alone := len(m.proven) == 0 && len(m.trying) > 0
	var step []*Node
	for _, n := range m.line {
		trial := m.unproven(n.Build)
		waits := trial && (alone || m.trying[n.Build])
		place := n.Changing || places > 0 && (waits || m.room(n))
		switch {
		case trial && first[n.Build], n.Stuck && waits:
		case n.Stuck, place && !waits:
			if !n.Stuck && !n.Changing { // else it needs no place: it is unavailable already
				places--
				m.take(n)
			}
			if first[n.Build] = trial; trial {
				m.begin([]*Node{n})
				alone = len(m.proven) == 0
			} else {
				step = append(step, n)
			}
		case trial && second[n.Build], ahead <= 0:
		default:
			second[n.Build] = trial
			ahead--
			if !n.Held && !n.First {
				m.Deliver[n.Name] = true
			}
		}
	}
	m.begin(step)
	m.joins(places)
}

// begin gives the nodes of a step their order once all of them hold the image. It does not wait for
// nodes to which the image does not come, or that have nothing to lose.
func (m *maker) begin(step []*Node) {
	whole := true
	for _, n := range step {
		if !n.Stuck && !n.First && !n.Held {
			m.Deliver[n.Name] = true
			whole = whole && n.Late
		}
	}
	for _, n := range step {
		if n.Stuck || n.First || whole && n.Held {
			m.Start[n.Name] = true
		}
	}
}
