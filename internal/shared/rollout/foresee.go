// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"time"
)

// Forecast is how a rollout goes on if every node obeys, every image comes and nothing else
// changes.
type Forecast struct {
	// Limit is how many of Total nodes may be unavailable, and Unavailable how many are now.
	Total, Limit, Unavailable int
	// Steps are the nodes that change together, in order, without first loads.
	Steps [][]string
	// Left are nodes that should change and whose turn does not come as things stand.
	Left []Left
	// Halt is why no node is begun with; zero: nothing.
	Halt Halt
	// Mass are deselected or tainted nodes that are too many to go without a confirmation.
	Mass []string
}

// Left is a node whose turn does not come, and why.
type Left struct {
	Node string
	Why  string
}

// Foresee plays the rollout by asking [Make] again and again, and so foresees the order that is
// followed. Nodes that may yet be selected again leave when nothing else is left.
func Foresee(nodes []Node, policy Policy, now time.Time) *Forecast {
	first := Make(nodes, policy, now)
	f := &Forecast{Total: first.Total, Limit: first.Limit, Unavailable: first.Unavailable, Halt: first.Halt, Mass: first.Mass}
	g := &game{nodes: slices.Clone(nodes), now: now}
	for {
		p := Make(g.nodes, policy, g.now)
		if g.follow(p) {
			continue
		}
		f.Steps = g.end(f.Steps)
		if !g.pass(p) && !g.grow() {
			f.Left = g.left(p)
			return f
		}
	}
}

// game is a rollout that is played ahead.
type game struct {
	nodes []Node
	now   time.Time
	// step are the nodes that were begun with since time last went by.
	step []string
}

// follow does what a plan says now. It reports whether there was anything to do.
func (g *game) follow(p *Plan) bool {
	moved := false
	for i := range g.nodes {
		n := &g.nodes[i]
		switch {
		case p.Deliver[n.Name] && !n.Held:
			n.Held = true
		case !p.Start[n.Name]:
			continue
		case n.Stage == Leaving:
			g.step = append(g.step, n.Name)
			n.Stage = Going
		case n.Stage == Behind:
			g.step = append(g.step, n.Name)
			*n = Node{Name: n.Name, Build: n.Build, Stage: Given, Ready: n.Ready, Serving: true, Held: true}
		default:
			// One that keeps what is live has its change with the next boot.
			*n = Node{Name: n.Name, Build: n.Build, Stage: Given, Ready: n.Ready, Serving: n.Serving, Rests: n.Serving, Held: true}
		}
		moved = true
	}
	return moved
}

// end closes the step.
func (g *game) end(steps [][]string) [][]string {
	if len(g.step) > 0 {
		slices.Sort(g.step)
		steps = append(steps, g.step)
		g.step = nil
	}
	return steps
}

// pass lets time go by until what was begun is done, or has soaked, and reports whether it helped.
func (g *game) pass(p *Plan) bool {
	before := len(g.nodes)
	g.nodes = slices.DeleteFunc(g.nodes, func(n Node) bool { return n.Stage == Going && n.Ready && !n.Tainted })
	passed := len(g.nodes) < before
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.Stage == Going && n.Ready {
			n.Stage, n.Serving, passed = Out, false, true
		}
		if n.Stage == Given && n.Ready && n.Failed == "" && !n.Rests && n.Since.IsZero() {
			n.Since, n.Serving, passed = g.now, true, true
		}
	}
	if !passed && p.Again.After(g.now) {
		g.now, passed = p.Again, true
	}
	return passed
}

// grow ends the grace of nodes that are no longer selected.
func (g *game) grow() bool {
	grown := false
	for i := range g.nodes {
		if n := &g.nodes[i]; n.Stage == Leaving && n.Later {
			n.Later, grown = false, true
		}
	}
	return grown
}

// left are the nodes that still wait when nothing moves any more.
func (g *game) left(p *Plan) []Left {
	var all []Left
	for i := range g.nodes {
		n := &g.nodes[i]
		if !p.Hold[n.Name] {
			continue
		}
		all = append(all, Left{Node: n.Name, Why: why(n, p)})
	}
	slices.SortFunc(all, func(a, b Left) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

func why(n *Node, p *Plan) string {
	switch {
	case n.Paused:
		return "paused by annotation"
	case n.Stage == Leaving && len(p.Mass) > 0:
		return "more nodes than may be unavailable are deselected or tainted, and nobody has confirmed that"
	case n.Stage != Leaving && p.Halt == HaltPaused:
		return "spec.rollout.paused is set"
	case n.Stage != Leaving && p.Halt == HaltFailed:
		return "a node failed with this change"
	case !n.Ready:
		return "the node is not Ready"
	case n.Stage == Behind && !n.Serving && !n.Stuck:
		return "its earlier order is still being carried out"
	}
	return "no more nodes may be unavailable"
}
