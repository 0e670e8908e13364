// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Visit is why a node is unavailable for a Module's change.
type Visit int

const (
	// None says that it is not.
	None Visit = iota
	// Begins says that it may be given its order.
	Begins
	// Changes says that it has the order, which is not carried out yet.
	Changes
	// Holds says that it is drained, soaks, is waited for, or is told to unload by a taint.
	Holds
)

// visit is what goes on on a node: it is out of service for the change, or is made ready for that.
// A failed one is not: it keeps a place of maxUnavailable, but would keep other Modules waiting for
// as long as it fails. Nor is a first load, which takes nothing away.
func (m *maker) visit(n *Node) Visit {
	switch n.Stage {
	case Behind, Leaving:
		if n.Changing {
			return Changes
		} else if n.Begun {
			return Holds
		}
	case Given:
		switch {
		case n.Failed != "" || n.Rests || !n.Serving && !n.Opened:
		case n.Since.IsZero():
			return Changes
		case !m.soaked(n):
			return Holds
		}
	case Going:
		return Changes
	case Out:
		return Holds
	case Fresh, AtBoot:
		if n.Changing {
			return Changes
		}
	}
	return None
}

// open reports whether a node counts in its pool.
func (m *maker) open(n *Node) bool { return m.visit(n) != None }

// room reports whether a node may become unavailable as far as its pool goes, and notes when not.
func (m *maker) room(n *Node) bool {
	if m.pools == nil || n.Visited || !n.Ready || m.open(n) || m.pools[n.Pool] > 0 {
		return true
	}
	m.Crowded = append(m.Crowded, n.Name)
	return false
}

// take takes a place in its pool for a node that has none yet.
func (m *maker) take(n *Node) {
	if m.pools != nil {
		m.taken[n.Name] = true
	}
	if !m.open(n) {
		m.occupy(n)
	}
}

// occupy takes a node's place in its pool, unless the node is unavailable for something else.
func (m *maker) occupy(n *Node) {
	if m.pools != nil && !n.Visited && n.Ready {
		m.pools[n.Pool]--
	}
}

// JoinTime is how long a node that has a Module's change stays cordoned for another Module that is
// about to change there, too.
const JoinTime = 30 * time.Second

// joins says where the Module would go on if another one had made the node unavailable.
func (m *maker) joins(places int) {
	if m.pools == nil {
		return
	}
	if m.Spare = places + m.soon; m.Trial {
		m.Spare = 0 // the first node is among the next ones
	}
	for _, n := range m.line {
		switch {
		case m.Start[n.Name] || n.Stuck:
		case m.taken[n.Name]:
			m.Next = append(m.Next, n.Name)
		default:
			m.Line = append(m.Line, n.Name)
		}
	}
}

// opens notes the nodes where the change is under way or begins now.
func (m *maker) opens(nodes []Node) {
	if m.pools == nil {
		return
	}
	for i := range nodes {
		n := &nodes[i]
		begins := m.Start[n.Name] && (n.Stage == Behind && !n.Stuck || n.Stage == Leaving && n.Serving)
		if v := m.visit(n); v != None {
			m.Open[n.Name] = v
		} else if begins {
			m.Open[n.Name] = Begins
		}
	}
}
