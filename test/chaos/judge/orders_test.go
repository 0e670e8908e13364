// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

const (
	module = "driver"
	of     = "ns/driver"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a moment, in seconds.
func at(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }

func loads(s float64, what string) fake.Call {
	return fake.Call{Time: at(s), Call: load, Module: module, BuildID: what, For: of}
}

func unloads(s float64, what string) fake.Call {
	return fake.Call{Time: at(s), Call: unload, Module: module, BuildID: what, For: of}
}

func reboots(s float64) fake.Call { return fake.Call{Time: at(s), Call: reboot} }

// wants is an order; "" is to unload.
func wants(s float64, what string) Order {
	return Order{Revision: int64(s * 1000), Received: at(s), Done: at(s), Want: what, Absent: what == "", Image: what}
}

func TestExplain(t *testing.T) {
	byHand := fake.Call{Time: at(5), Call: rmmod, Module: module, BuildID: "a"}
	refused := unloads(5, "a")
	refused.Result = "EAGAIN"
	stranger := unloads(5, "a")
	stranger.For = "ns/other"
	late := fake.Call{Time: at(5), Call: returned, Module: module}
	for _, tc := range []struct {
		name                              string
		orders                            []Order
		calls                             []fake.Call
		reloads, removals, unasked, wrong int
	}{
		{name: "an upgrade and a removal", orders: []Order{wants(0, "a"), wants(2, "b"), wants(4, "")}, calls: []fake.Call{
			loads(1, "a"), unloads(3, "a"), loads(3.1, "b"), unloads(5, "b"),
		}, reloads: 1, removals: 1},
		{name: "unloaded without an order", orders: []Order{wants(0, "a")}, calls: []fake.Call{loads(1, "a"), unloads(5, "a")}, unasked: 1},
		{name: "unloaded before the order", orders: []Order{wants(0, "a"), wants(6, "")}, calls: []fake.Call{loads(1, "a"), unloads(5, "a")},
			unasked: 1},
		{name: "unloaded by hand under an order to unload", orders: []Order{wants(0, "a"), wants(2, "")},
			calls: []fake.Call{loads(1, "a"), byHand}, unasked: 1},
		{name: "unloaded for another Module", orders: []Order{wants(0, "a"), wants(2, "")}, calls: []fake.Call{loads(1, "a"), stranger},
			unasked: 1},
		{name: "an unload that was left behind and came to pass", orders: []Order{wants(0, "a")}, calls: []fake.Call{loads(1, "a"), late},
			unasked: 1},
		{name: "refused by the kernel", orders: []Order{wants(0, "a")}, calls: []fake.Call{loads(1, "a"), refused}},
		{name: "reloaded twice for one order", orders: []Order{wants(0, "a"), wants(2, "b")}, calls: []fake.Call{
			loads(1, "a"), unloads(3, "a"), loads(3.1, "b"), unloads(5, "b"), loads(5.1, "b"),
		}, reloads: 1, unasked: 1},
		{name: "back to an order that was over", orders: []Order{wants(0, "a"), wants(2, "b")}, calls: []fake.Call{
			loads(1, "a"), unloads(3, "a"), loads(3.1, "b"), unloads(5, "b"), loads(5.1, "a"),
		}, reloads: 1, unasked: 1, wrong: 1},
		{name: "loaded again after a reboot", orders: []Order{wants(0, "a"), wants(2, "b")}, calls: []fake.Call{
			loads(1, "a"), reboots(3), loads(4, "a"), unloads(5, "a"), loads(6, "b"),
		}, reloads: 1},
		{name: "loaded what nobody ordered", orders: []Order{wants(0, "a")}, calls: []fake.Call{loads(1, "c")}, wrong: 1},
		{name: "loaded before the order", orders: []Order{wants(3, "a")}, calls: []fake.Call{loads(1, "a")}, wrong: 1},
		{name: "other parameters are another load", orders: []Order{wants(0, "a"), wants(2, "a x=1")}, calls: []fake.Call{
			loads(1, "a"), unloads(5, "a"), {Time: at(6), Call: load, Module: module, BuildID: "a", Params: []string{"x=1"}, For: of},
		}, reloads: 1},
		{name: "another module's calls", orders: nil, calls: []fake.Call{{Time: at(1), Call: unload, Module: "dependency", For: of}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := Explain(Node{Name: "n", Orders: tc.orders, Calls: tc.calls}, module, of)

			if len(a.Reloads) != tc.reloads || a.Removals != tc.removals || len(a.Unasked) != tc.unasked || len(a.WrongLoads) != tc.wrong {
				t.Errorf("reloads %d, removals %d, unasked %v, wrong loads %v; want %d, %d, %d, %d",
					len(a.Reloads), a.Removals, a.Unasked, a.WrongLoads, tc.reloads, tc.removals, tc.unasked, tc.wrong)
			}
		})
	}
}

func TestDown(t *testing.T) {
	nodes := []Node{
		{Name: "a", Calls: []fake.Call{loads(1, "x"), reboots(2), loads(4, "x"), unloads(9, "x")}},
		{Name: "b", Calls: []fake.Call{loads(1, "x"), unloads(3, "x"), loads(5, "y")}},
		{Name: "loads late for the first time", Calls: []fake.Call{reboots(1), loads(6, "x")}},
	}

	if most := Down(nodes, module); most != 2 {
		t.Errorf("%d kernels were without the module at a time, want 2", most)
	}
}
