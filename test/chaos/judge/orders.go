// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// Reload is an unload that an order for another build asked for.
type Reload struct {
	Node string
	// Call is the unload.
	Call fake.Call
	// Order is the first that asked for it.
	Order Order
}

// Account explains a node's calls by its orders.
type Account struct {
	// Reloads and Removals are unloads that were asked for: for another build, and for nothing.
	Reloads  []Reload
	Removals int
	// Unasked are unloads that no order asked for, WrongLoads loads of what no order wanted.
	Unasked, WrongLoads []Finding
}

// Explain finds for each call the order that asked for it. A node never goes back to an order older
// than one that it has carried out, and knows none before the API server does. It may be late: the
// API server was away, or the node was.
func Explain(n Node, module, of string) Account {
	var a Account
	holds, at := "", 0
	for _, c := range n.Calls {
		switch {
		case c.Call == reboot:
			holds = ""
		case c.Module != module || c.Result != "":
		case c.Call == load, c.Call == insmod:
			holds = What(c.BuildID, c.Params)
			i := find(n.Orders, at, c, func(o Order) bool { return !o.Absent && o.Want == holds })
			if i < 0 || c.Call == insmod || c.For != of {
				a.WrongLoads = append(a.WrongLoads, Finding{n.Name, c.Time,
					fmt.Sprintf("%s of %s for %q, which no order wanted", c.Call, holds, c.For)})
			} else {
				at = i
			}
		case gone(c):
			i := find(n.Orders, at, c, func(o Order) bool { return o.Absent || o.Want != holds })
			if i < 0 || c.Call != unload || c.For != of {
				a.Unasked = append(a.Unasked, Finding{n.Name, c.Time, fmt.Sprintf("%s of %s for %q, which no order asked for", c.Call, holds, c.For)})
			} else {
				at = i
				a.add(n.Name, c, n.Orders[i])
			}
			holds = ""
		}
	}
	return a
}

func (a *Account) add(node string, c fake.Call, o Order) {
	if o.Absent {
		a.Removals++
		return
	}
	a.Reloads = append(a.Reloads, Reload{Node: node, Call: c, Order: o})
}

// find is the first order from at on that was given before the call and answers.
func find(orders []Order, at int, c fake.Call, answers func(Order) bool) int {
	for i := at; i < len(orders) && !orders[i].Received.After(c.Time); i++ {
		if answers(orders[i]) {
			return i
		}
	}
	return -1
}
