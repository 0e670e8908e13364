// SPDX-License-Identifier: Apache-2.0

// Package strikes judges what many nodes report of loads that took them down. It is pure. An
// agent's fuse sees its own node only; here it is decided whether a build goes to further nodes,
// and whether the build was the cause at all.
//
//	a strike ──► the delivery goes to no further node ──► a new delivery, a good load, a retry
//	   │
//	   └─ many nodes within minutes, and no kernel named a module: a cause from outside. The
//	      nodes excuse it, and nothing is held. A node that goes down again counts.
package strikes

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Strike is what one node reports about one Module's order.
type Strike struct {
	Node   string
	Module types.NamespacedName
	// Delivery that was to be loaded, and the build in it that is held back.
	Delivery, Build string
	At              time.Time // when the load began, by the node's clock
	// Retried is the request to try again that the node carried out before it; zero: none.
	Retried time.Time
	// Evidence: the kernel named the module. Kept: the node did not excuse the strike as asked.
	Evidence, Kept bool
	// Excused is until when loads that were begun are excused already; zero: none are.
	Excused time.Time
}

// ExcuseEvery is how long after one excuse a node's next strike may be excused.
const ExcuseEvery = 24 * time.Hour

// counts reports whether a strike counts whatever else went down then. A node that was excused and
// goes down with the same delivery again has shown that the cause is not outside.
func (s Strike) counts() bool {
	return s.Evidence || s.Kept || s.At.After(s.Excused) && s.At.Before(s.Excused.Add(ExcuseEvery))
}

// Fleet is what all nodes report.
type Fleet struct {
	strikes []Strike
	// past are strikes that were excused: they tell what a late node's strike belongs to.
	past []Mark
}

// Verdict is what follows for one Module.
type Verdict struct {
	// Held are the deliveries that go to no further node, each with a strike that says why.
	Held map[string]Strike
	// Excuse is, by node, until when loads that were begun are excused.
	Excuse map[string]time.Time
}

// Add takes the report of a node that exists.
func (f *Fleet) Add(config *v1beta1.NodeModulesConfig) {
	f.strikes = append(f.strikes, Reported(config)...)
	for i := range config.Spec.Modules {
		if at := config.Spec.Modules[i].Excused; at != nil {
			f.past = append(f.past, Mark{Node: config.Name, At: at.Time})
		}
	}
}

// Reported are the strikes that count: those of a delivery that the node has an order for.
func Reported(config *v1beta1.NodeModulesConfig) []Strike {
	var all []Strike
	for i := range config.Status.Attempts {
		a := &config.Status.Attempts[i]
		if a.Strike == nil {
			continue
		}
		ordered := slices.IndexFunc(config.Spec.Modules, func(o v1beta1.NodeModuleSpec) bool {
			return o.Namespace == a.Namespace && o.Name == a.Name && o.Delivery != nil && o.Delivery.ID == a.Strike.Delivery
		})
		if ordered < 0 {
			continue
		}
		s := Strike{
			Node: config.Name, Module: types.NamespacedName{Namespace: a.Namespace, Name: a.Name},
			Delivery: a.Strike.Delivery, Build: a.Strike.Build, At: a.Strike.Began.Time,
			Evidence: a.Strike.Evidence, Kept: a.Strike.Kept,
		}
		if a.Strike.Retry != nil {
			s.Retried = a.Strike.Retry.Time
		}
		if until := config.Spec.Modules[ordered].Excused; until != nil {
			s.Excused = until.Time
		}
		all = append(all, s)
	}
	return all
}

// Judge says what follows for a Module. Causes from outside are looked for among the strikes of all
// Modules. Retried is the last request to try the whole Module again; zero: none. Strikes of nodes
// that have not carried it out hold nothing. Its time is only a name: no node's clock counts.
func (f *Fleet) Judge(module types.NamespacedName, retried time.Time) Verdict {
	v := Verdict{Held: map[string]Strike{}, Excuse: map[string]time.Time{}}
	mine := slices.DeleteFunc(slices.Clone(f.strikes), func(s Strike) bool { return s.Module != module || s.Retried.Before(retried) })
	if len(mine) == 0 {
		return v
	}
	slices.SortFunc(mine, func(a, b Strike) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.At.Compare(b.At)) })
	outside := f.outside()
	for _, s := range mine {
		if !s.counts() && slices.Contains(outside, Mark{Node: s.Node, At: s.At.UTC()}) {
			v.Excuse[s.Node] = s.At
			continue
		}
		if _, held := v.Held[s.Delivery]; !held {
			v.Held[s.Delivery] = s
		}
	}
	return v
}

func (f *Fleet) outside() []Mark {
	marks := make([]Mark, 0, len(f.strikes)+len(f.past))
	for _, s := range f.strikes {
		if !s.Evidence {
			marks = append(marks, Mark{Node: s.Node, At: s.At.UTC()})
		}
	}
	for _, m := range f.past {
		marks = append(marks, Mark{Node: m.Node, At: m.At.UTC()})
	}
	return Outside(marks)
}

const (
	// Window is how close together the strikes of an outside cause are.
	Window = 10 * time.Minute
	// MoreThan so many nodes within Window have an outside cause.
	MoreThan = 3
)

// Mark is one strike without evidence: no kernel's dump names a module.
type Mark struct {
	Node string
	At   time.Time // shortly before the node went down: when the load in question began
}

// Outside returns the strikes that have an outside cause, in order of time: those within some
// Window with strikes of more than MoreThan nodes. What has been excused once stays excused.
func Outside(strikes []Mark) []Mark {
	sorted := slices.SortedFunc(slices.Values(strikes), func(a, b Mark) int { return a.At.Compare(b.At) })
	var found []Mark
	nodes := map[string]int{} // strikes by node within [first, last]
	first, taken := 0, 0
	for last, s := range sorted {
		nodes[s.Node]++
		for ; s.At.Sub(sorted[first].At) > Window; first++ {
			gone := sorted[first].Node
			if nodes[gone]--; nodes[gone] == 0 {
				delete(nodes, gone)
			}
		}
		if len(nodes) > MoreThan {
			found = append(found, sorted[max(first, taken):last+1]...)
			taken = last + 1
		}
	}
	return found
}
