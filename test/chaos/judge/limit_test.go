// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// settled is a node that has held build a from second 1 on, and was shown as up from second 2.
func settled(name string, orders []Order, calls []fake.Call, sights ...Sight) Node {
	return Node{
		Name: name, Orders: append([]Order{wants(0, "a")}, orders...), Calls: append([]fake.Call{loads(1, "a")}, calls...),
		Sights: append([]Sight{{From: at(2), Up: true}}, sights...),
	}
}

func TestJudge(t *testing.T) {
	// The node that is judged gets its order for b at second 20.
	judged := settled("judged", []Order{wants(20, "b")}, []fake.Call{unloads(21, "a"), loads(21.1, "b")})
	up := settled("up", nil, nil)
	changed := settled("changed", []Order{wants(10, "b")}, []fake.Call{unloads(11, "a"), loads(12, "b")})
	ordered := settled("ordered", []Order{wants(19.9, "b")}, []fake.Call{unloads(25, "a"), loads(26, "b")})
	orderedLater := settled("ordered later", []Order{wants(20.1, "b")}, []fake.Call{unloads(20.2, "a"), loads(26, "b")})
	halfWay := settled("half way", []Order{wants(15, "b")}, []fake.Call{unloads(16, "a"), loads(26, "b")})
	rebooted := settled("rebooted", nil, []fake.Call{reboots(15), loads(26, "a")}, Sight{From: at(16)}, Sight{From: at(27), Up: true})
	unseen := settled("rebooted, and nobody knows", nil, []fake.Call{reboots(15), loads(26, "a")}, Sight{From: at(19)},
		Sight{From: at(27), Up: true})
	back := settled("rebooted and back", nil, []fake.Call{reboots(15), loads(16, "a")}, Sight{From: at(16)})
	first := Node{Name: "first load", Orders: []Order{wants(10, "b")}, Calls: []fake.Call{loads(26, "b")}}
	down := settled("down itself", []Order{wants(20, "b")}, []fake.Call{reboots(10), loads(20.1, "a"), unloads(21, "a"), loads(22, "b")},
		Sight{From: at(11)})

	told := settled("told to unload", []Order{wants(10, "")}, []fake.Call{unloads(11, "a")}, Sight{From: at(11)})
	again := settled("told to load it again", []Order{wants(10, ""), wants(18, "b")}, []fake.Call{unloads(11, "a"), loads(26, "b")},
		Sight{From: at(11)})
	kept := settled("taken back before it unloaded", []Order{wants(10, ""), wants(11, "b")}, []fake.Call{unloads(26, "a"), loads(27, "b")})
	loadedAgain := settled("loaded again, and rebooted", []Order{wants(5, ""), wants(7, "b")},
		[]fake.Call{unloads(6, "a"), loads(8, "b"), reboots(12), loads(26, "b")}, Sight{From: at(6)}, Sight{From: at(8), Up: true},
		Sight{From: at(13)})

	for _, tc := range []struct {
		name     string
		of       Node
		others   []Node
		limit    int
		exceeded int
	}{
		{name: "nobody else is down", of: judged, others: []Node{up, changed}, limit: 1},
		{name: "one is ordered and has not begun", of: judged, others: []Node{ordered}, limit: 1, exceeded: 1},
		{name: "one is half way", of: judged, others: []Node{halfWay}, limit: 1, exceeded: 1},
		{name: "two of two places are taken", of: judged, others: []Node{halfWay, ordered, up}, limit: 2, exceeded: 1},
		{name: "two of three places are taken", of: judged, others: []Node{halfWay, ordered, up}, limit: 3},
		{name: "one was ordered later", of: judged, others: []Node{orderedLater}, limit: 1},
		{name: "one has rebooted", of: judged, others: []Node{rebooted}, limit: 1, exceeded: 1},
		{name: "one has rebooted, and the API has not shown it for long enough", of: judged, others: []Node{unseen}, limit: 1},
		{name: "one has rebooted and is back in the kernel, which the API does not show yet", of: judged, others: []Node{back}, limit: 1},
		{name: "first loads take nothing away", of: judged, others: []Node{first}, limit: 1},
		{name: "one was told to unload", of: judged, others: []Node{told}, limit: 1},
		{name: "one was told to unload, and to load again", of: judged, others: []Node{again}, limit: 1},
		{name: "one was told to unload, and kept it", of: judged, others: []Node{kept}, limit: 1, exceeded: 1},
		{name: "one loaded again, and rebooted", of: judged, others: []Node{loadedAgain}, limit: 1, exceeded: 1},
		{name: "a node that is down loses nothing", of: down, others: []Node{halfWay}, limit: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			account := Explain(tc.of, module, of)
			if len(account.Reloads) != 1 {
				t.Fatalf("the node has %d reloads", len(account.Reloads))
			}

			l := Judge(append(tc.others, tc.of), account.Reloads, Rule{
				Module: module, Limit: func(Order) int { return tc.limit }, Notice: 2 * time.Second,
			})

			if len(l.Exceeded) != tc.exceeded {
				t.Errorf("found %v, want %d", l.Exceeded, tc.exceeded)
			}
			if l.Judged+l.WhileDown != 1 || (l.WhileDown == 1) != (tc.of.Name == down.Name) {
				t.Errorf("judged %d, while down %d", l.Judged, l.WhileDown)
			}
		})
	}
}
