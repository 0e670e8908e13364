// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/internal/shared/rollout"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func behind(name string, change ...func(*rollout.Node)) rollout.Node {
	n := rollout.Node{Name: name, Stage: rollout.Behind, Ready: true, Serving: true, Held: true}
	for _, f := range change {
		f(&n)
	}
	return n
}

func given(name string, change ...func(*rollout.Node)) rollout.Node {
	return behind(name, append([]func(*rollout.Node){func(n *rollout.Node) { n.Stage = rollout.Given }}, change...)...)
}

func leaving(name string, change ...func(*rollout.Node)) rollout.Node {
	return behind(name, append([]func(*rollout.Node){func(n *rollout.Node) { n.Stage = rollout.Leaving }}, change...)...)
}

func atBoot(name string) rollout.Node {
	return behind(name, func(n *rollout.Node) { n.Stage = rollout.AtBoot })
}

func first(name string) rollout.Node {
	return behind(name, empty, func(n *rollout.Node) { n.First = true })
}

func away(n *rollout.Node)           { n.Ready = false }
func empty(n *rollout.Node)          { n.Held = false }
func late(n *rollout.Node)           { n.Held, n.Late = false, true }
func fresh(name string) rollout.Node { return rollout.Node{Name: name, Ready: true} }

func stuck(n *rollout.Node)  { n.Serving, n.Stuck = false, true }
func gone(n *rollout.Node)   { n.Serving = false }
func turns(n *rollout.Node)  { n.Changing = true }
func failed(n *rollout.Node) { n.Failed = "RolledBack" }
func rests(n *rollout.Node)  { n.Rests = true }
func paused(n *rollout.Node) { n.Paused = true }
func later(n *rollout.Node)  { n.Later = true }
func told(n *rollout.Node)   { n.Tainted = true }

func out(name string) rollout.Node {
	return rollout.Node{Name: name, Stage: rollout.Out, Ready: true, Tainted: true}
}

func build(id string) func(*rollout.Node) {
	return func(n *rollout.Node) { n.Build = id }
}

func done(ago time.Duration) func(*rollout.Node) {
	return func(n *rollout.Node) { n.Since = noon.Add(-ago) }
}

// line is a plan in one line.
func line(p *rollout.Plan) string {
	var parts []string
	for word, set := range map[string]map[string]bool{"start": p.Start, "deliver": p.Deliver} {
		if len(set) > 0 {
			parts = append(parts, word+" "+strings.Join(slices.Sorted(maps.Keys(set)), " "))
		}
	}
	slices.Sort(parts)
	if held := slices.Sorted(maps.Keys(p.Hold)); p.Halt != "" && len(held) > 0 {
		parts = append(parts, "hold "+strings.Join(held, " "))
	}
	if p.Halt != "" {
		parts = append(parts, string(p.Halt))
	}
	if len(p.Mass) > 0 {
		parts = append(parts, fmt.Sprintf("mass %d", len(p.Mass)))
	}
	if !p.Confirmation.IsZero() {
		parts = append(parts, "confirmed in vain for "+p.Confirmation.Format(time.TimeOnly))
	}
	if !p.Again.IsZero() {
		parts = append(parts, "again in "+p.Again.Sub(noon).String())
	}
	return strings.Join(parts, ", ")
}

func TestWhoMayChangeNow(t *testing.T) {
	plain := rollout.Policy{MaxUnavailable: intstr.FromInt32(2)}
	careful := rollout.Policy{MaxUnavailable: intstr.FromInt32(2), Trial: true, PauseOnFailure: true, Soak: time.Minute}
	with := func(p rollout.Policy, change func(*rollout.Policy)) rollout.Policy { change(&p); return p }
	cases := map[string]struct {
		given  []rollout.Node
		policy rollout.Policy
		then   string
	}{
		"as many as may be unavailable": {given: []rollout.Node{behind("c"), behind("b"), behind("a")}, policy: plain, then: "start a b"},
		"10 % of few nodes are one": {given: []rollout.Node{behind("a"), behind("b")},
			policy: rollout.Policy{MaxUnavailable: intstr.FromString("10%")}, then: "start a"},
		"a percentage is rounded down": {given: []rollout.Node{behind("a"), behind("b"), behind("c")},
			policy: rollout.Policy{MaxUnavailable: intstr.FromString("60%")}, then: "start a"},
		"nonsense is one": {given: []rollout.Node{behind("a"), behind("b")}, policy: rollout.Policy{MaxUnavailable: intstr.FromString("many")},
			then: "start a"},
		"less those that are unavailable: being changed": {
			given: []rollout.Node{given("a"), behind("b"), behind("c")}, policy: plain, then: "start b"},
		"and failed, whether or not the one before serves": {
			given: []rollout.Node{given("a", failed), behind("b"), behind("c")}, policy: plain, then: "start b"},
		"and not Ready, with the change or without": {
			given: []rollout.Node{given("a", away, done(time.Hour)), behind("b", away), behind("c")}, policy: plain, then: ""},
		"and rebooted, which are not begun with before they are back": {
			given: []rollout.Node{behind("a", gone), behind("b"), behind("c")}, policy: plain, then: "start b"},
		"and rebooted into another kernel, until they have it there": {
			given: []rollout.Node{{Name: "a", Ready: true, Lost: true}, behind("b"), behind("c")}, policy: plain, then: "start a b"},
		"and on their way out": {
			given: []rollout.Node{{Name: "a", Stage: rollout.Going, Ready: true}, behind("b"), behind("c")}, policy: plain, then: "start b"},
		"those that wait for a boot have what they had": {
			given: []rollout.Node{given("a", rests), given("b", rests), behind("c")}, policy: plain, then: "start c"},
		"first loads count for nothing and wait for nothing": {
			given:  []rollout.Node{fresh("a"), fresh("b"), fresh("c"), behind("d"), behind("e"), behind("f")},
			policy: plain, then: "start a b c d e"},
		"but for those on nodes that are not Ready": {
			given:  []rollout.Node{{Name: "a"}, fresh("b"), fresh("c"), behind("d"), behind("e"), behind("f")},
			policy: plain, then: "start a b c d"},
		"a pause holds them, too": {
			given:  []rollout.Node{fresh("a"), {Name: "b", Paused: true}, behind("c")},
			policy: with(plain, func(p *rollout.Policy) { p.Paused = true }), then: "hold a c, paused"},
		"but not what a boot took away": {
			given:  []rollout.Node{{Name: "a", Ready: true, Lost: true}, fresh("b")},
			policy: with(plain, func(p *rollout.Policy) { p.Paused = true }), then: "start a, hold b, paused"},
		"a failure does not hold them": {
			given: []rollout.Node{fresh("a"), given("b", failed)}, policy: careful, then: "start a, failed"},
		"a first load that takes out what serves waits for its turn": {
			given: []rollout.Node{first("a"), first("b"), first("c"), fresh("d")}, policy: plain, then: "start a b d"},
		"and proves its build": {
			given: []rollout.Node{first("a"), first("b"), fresh("d")}, policy: careful, then: "start a d"},
		"which may be proven": {
			given:  []rollout.Node{first("a"), first("b"), given("c"), given("d", done(time.Hour)), fresh("e")},
			policy: careful, then: "start a e"},
		"without an order, no image is brought ahead": {
			given: []rollout.Node{first("a"), given("b"), given("c")}, policy: plain, then: ""},
		"what changes with the next boot needs no place": {
			given: []rollout.Node{atBoot("a"), atBoot("b"), atBoot("c")}, policy: careful, then: "start a b c"},
		"but waits while the rollout is paused": {
			given:  []rollout.Node{atBoot("a"), atBoot("b")},
			policy: with(plain, func(p *rollout.Policy) { p.Paused = true }), then: "hold a b, paused"},
		"and where a node failed with it": {
			given: []rollout.Node{atBoot("a"), given("b", failed)}, policy: careful, then: "hold a, failed"},
		"what has nothing to lose needs no place": {
			given: []rollout.Node{behind("a", stuck), behind("b", stuck), behind("c", stuck), behind("d")}, policy: plain, then: "start a b c"},
		"a node that is paused by annotation is passed over": {
			given: []rollout.Node{behind("a", paused), behind("b"), behind("c"), behind("d")}, policy: plain, then: "start b c"},

		"a step begins when all of it is delivered": {
			given: []rollout.Node{behind("a"), behind("b", empty), behind("c")}, policy: plain, then: "deliver b"},
		"but for those that the image does not reach": {
			given: []rollout.Node{behind("a", late), behind("b")}, policy: plain, then: "deliver a, start b"},
		"which come last": {
			given: []rollout.Node{behind("a", late), behind("b"), behind("c")}, policy: plain, then: "deliver a, start b c"},
		"the next ones are delivered meanwhile, no more than a step": {
			given:  []rollout.Node{given("a"), given("b"), behind("c", empty), behind("d", empty), behind("e", empty)},
			policy: plain, then: "deliver c d"},

		"a node that an earlier order may change now is unavailable, and needs no place": {
			given:  []rollout.Node{behind("a"), behind("b", turns), behind("c"), behind("d"), behind("e")},
			policy: rollout.Policy{MaxUnavailable: intstr.FromInt32(1)}, then: "start b"},
		"so it does if it is no longer selected": {
			given:  []rollout.Node{leaving("a"), leaving("b", turns), behind("c"), behind("d")},
			policy: rollout.Policy{MaxUnavailable: intstr.FromInt32(2)}, then: "start a b"},
		"the first step is one node": {given: []rollout.Node{behind("a"), behind("b", empty)}, policy: careful, then: "start a"},
		"on which the others wait":   {given: []rollout.Node{given("a"), behind("b")}, policy: careful, then: ""},
		"for the soak time": {
			given: []rollout.Node{given("a", done(10*time.Second)), behind("b"), behind("c")}, policy: careful, then: "again in 50s"},
		"and no longer": {
			given: []rollout.Node{given("a", done(time.Minute)), behind("b"), behind("c"), behind("d")}, policy: careful, then: "start b c"},
		"each further node has to soak too": {
			given:  []rollout.Node{given("a", done(time.Hour)), given("b", done(30*time.Second)), behind("c"), behind("d")},
			policy: careful, then: "start c, again in 30s"},
		"a first node that went away may have gone by the change: nobody else gets it": {
			given: []rollout.Node{given("a", away), behind("b"), behind("c")}, policy: careful, then: ""},
		"but where another node has proven it": {
			given: []rollout.Node{given("a", away), given("b", done(time.Hour)), behind("c"), behind("d")}, policy: careful, then: "start c"},
		"a node whose build stays as it is proves nothing of another one": {
			given:  []rollout.Node{given("a", build("6.1"), done(time.Hour)), behind("b", build("6.12")), behind("c", build("6.12"))},
			policy: careful, then: "start b"},
		"each build has a first node": {
			given: []rollout.Node{behind("a", build("6.1")), behind("b", build("6.1")), behind("c", build("6.12"), empty),
				behind("d", build("6.12"), empty)},
			policy: careful, then: "deliver c, start a"},
		"the first of all begins alone": {
			given:  []rollout.Node{behind("a", build("6.1")), behind("b", build("6.1")), behind("c", build("6.12")), behind("d", build("6.12"))},
			policy: careful, then: "start a"},
		"and is waited for": {
			given: []rollout.Node{given("a", build("6.1")), behind("c", build("6.12")), behind("d", build("6.12"), stuck)}, policy: careful,
			then: ""},
		"after it, none waits for the other": {
			given: []rollout.Node{
				given("a", build("6.1"), done(time.Hour)), behind("b", build("6.1")), given("c", build("6.12")), behind("d", build("6.12"), empty),
				behind("e", build("6.12"), empty),
			},
			policy: careful, then: "deliver d, start b"},
		"a failure pauses": {
			given: []rollout.Node{given("a", done(time.Hour)), given("b", failed), behind("c")}, policy: careful, then: "hold c, failed"},
		"unless told otherwise": {
			given:  []rollout.Node{given("a", done(time.Hour)), given("b", failed), behind("c")},
			policy: with(careful, func(p *rollout.Policy) { p.PauseOnFailure = false }), then: "start c"},
		"but it keeps nothing from a node that has nothing": {
			given:  []rollout.Node{given("a", failed), behind("b", stuck), behind("c", stuck, paused), behind("d")},
			policy: careful, then: "start b, hold c d, failed"},
		"paused": {given: []rollout.Node{behind("a", empty), behind("b", stuck)},
			policy: with(careful, func(p *rollout.Policy) { p.Paused = true }), then: "hold a b, paused"},

		"deselected nodes take places": {
			given: []rollout.Node{leaving("a"), given("b"), behind("c")}, policy: plain, then: "start a"},
		"and wait for them":        {given: []rollout.Node{leaving("a"), given("b"), given("c")}, policy: plain, then: ""},
		"unless they have nothing": {given: []rollout.Node{leaving("a", gone), given("b"), given("c")}, policy: plain, then: "start a"},
		"too many of them stay":    {given: []rollout.Node{leaving("a"), leaving("b"), leaving("c")}, policy: plain, then: "mass 3"},
		"those in their grace count": {given: []rollout.Node{leaving("a"), leaving("b", later), leaving("c", later)}, policy: plain,
			then: "mass 3"},
		"a pause of the rollout is not theirs": {
			given: []rollout.Node{leaving("a")}, policy: with(plain, func(p *rollout.Policy) { p.Paused = true }), then: "start a, paused"},
		"tainted ones need no place": {given: []rollout.Node{leaving("a", told), given("b"), given("c")}, policy: plain, then: "start a"},
		"but take one":               {given: []rollout.Node{leaving("a", told), leaving("b"), given("c")}, policy: plain, then: "start a"},
		"also when they are out": {
			given: []rollout.Node{out("a"), {Name: "b", Stage: rollout.Going, Tainted: true}, behind("c")}, policy: plain, then: ""},
		"more of them than may be unavailable stay, and others go": {
			given: []rollout.Node{leaving("a", told), out("b"), out("c"), leaving("d", gone)}, policy: plain, then: "start d, mass 1"},
		"until they are confirmed": {
			given:  []rollout.Node{leaving("a", told), out("b"), out("c")},
			policy: with(plain, func(p *rollout.Policy) { p.Confirmed = noon }), then: "start a"},
		"with deselected ones, they are a slip": {
			given: []rollout.Node{leaving("a", told), leaving("b"), leaving("c", later)}, policy: plain, then: "mass 3"},
		"once confirmed all go that may": {
			given:  []rollout.Node{leaving("a"), leaving("b"), leaving("c"), leaving("d", later)},
			policy: with(plain, func(p *rollout.Policy) { p.Confirmed = noon.Add(-time.Minute) }), then: "start a b c"},
		"for an hour": {
			given:  []rollout.Node{leaving("a"), leaving("b"), leaving("c")},
			policy: with(plain, func(p *rollout.Policy) { p.Confirmed = noon.Add(-time.Hour) }), then: "mass 3, confirmed in vain for 11:00:00"},
		"and not before the time that was named": {
			given:  []rollout.Node{leaving("a"), leaving("b"), leaving("c")},
			policy: with(plain, func(p *rollout.Policy) { p.Confirmed = noon.Add(time.Minute) }), then: "mass 3, confirmed in vain for 12:01:00, " +
				"again in 1m0s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := line(rollout.Make(tc.given, tc.policy, noon)); got != tc.then {
				t.Errorf("plan %q, want %q", got, tc.then)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	p := rollout.Make([]rollout.Node{
		given("a", done(time.Hour)), given("b"), given("d", failed), given("c", failed), behind("e"), behind("f", away), fresh("g"),
	}, rollout.Policy{MaxUnavailable: intstr.FromInt32(5), PauseOnFailure: true}, noon)
	got := fmt.Sprintf("%d %d %d %d %d %d %d %v %s", p.Total, p.Limit, p.Unavailable, p.Done, p.Underway, p.Waiting, p.Away, p.Failed,
		p.Reason)
	if want := "7 5 4 1 1 2 1 [c d] RolledBack"; got != want {
		t.Errorf("numbers %s, want %s", got, want)
	}
}
