// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

func node(name string, pairs ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	return n
}

func claim(name string, created int64, selector map[string]string) kit.Claim {
	return kit.Claim{Key: types.NamespacedName{Namespace: "ns", Name: name}, Created: time.Unix(created, 0), Selector: selector}
}

// holding has a Module that selects as said.
func holding(c kit.Claim, selector map[string]string) kit.Claim {
	c.Module = &v1beta1.Module{Spec: v1beta1.ModuleSpec{Selector: selector}}
	return c
}

func TestWhoseNodesAreWhose(t *testing.T) {
	nodes := []corev1.Node{node("a", "rack", "1"), node("b", "rack", "1", "nic", "x"), node("c", "rack", "2", "nic", "x"),
		node("d", "rack", "3")}
	rack1, nicX := map[string]string{"rack": "1"}, map[string]string{"nic": "x"}
	cases := map[string]struct {
		me     kit.Claim
		others []kit.Claim
		then   string
	}{
		"alone":                 {me: claim("me", 1, rack1)},
		"itself is nobody else": {me: claim("me", 1, rack1), others: []kit.Claim{claim("me", 1, rack1)}},
		"others elsewhere":      {me: claim("me", 5, rack1), others: []kit.Claim{claim("o", 1, map[string]string{"rack": "2"})}},
		"the older one":         {me: claim("me", 1, rack1), others: []kit.Claim{claim("o", 2, nicX)}},
		"the younger one": {me: claim("me", 3, rack1), others: []kit.Claim{claim("o", 2, nicX)},
			then: "ns/o has the same nodes (b): choose others"},
		"one age, the first by name": {me: claim("me", 3, rack1), others: []kit.Claim{claim("o", 3, nicX)}},
		"one age, the second by name": {me: claim("me", 3, rack1), others: []kit.Claim{claim("a", 3, nicX)},
			then: "ns/a has the same nodes (b): choose others"},
		"the older one came too late": {me: claim("me", 1, rack1), others: []kit.Claim{holding(claim("o", 2, nicX), nicX)},
			then: "ns/o has the same nodes (b): choose others"},
		"the younger one was there": {me: holding(claim("me", 3, rack1), rack1), others: []kit.Claim{claim("o", 2, nicX)}},
		"both were, the older one":  {me: holding(claim("me", 1, rack1), rack1), others: []kit.Claim{holding(claim("o", 2, nicX), nicX)}},
		"both were, the younger one": {me: holding(claim("me", 3, rack1), rack1), others: []kit.Claim{holding(claim("o", 2, nicX), nicX)},
			then: "ns/o has the same nodes (b): choose others"},
		"it was, but elsewhere": {me: holding(claim("me", 1, nicX), map[string]string{"rack": "3"}),
			others: []kit.Claim{holding(claim("o", 2, rack1), rack1)}, then: "ns/o has the same nodes (b): choose others"},
		"another has not left yet": {me: claim("me", 1, rack1),
			others: []kit.Claim{holding(claim("o", 2, map[string]string{"rack": "3"}), nicX)}, then: "ns/o has the same nodes (b): choose others"},
		"no selector takes all": {me: claim("me", 3, nil), others: []kit.Claim{claim("o", 2, nicX)},
			then: "ns/o has the same nodes (b, c): choose others"},
		"several, the first by name": {me: claim("me", 3, nil), others: []kit.Claim{claim("z", 1, rack1), claim("o", 2, nicX)},
			then: "ns/o has the same nodes (a, b, c): choose others"},
		"one in another namespace, too": {me: claim("me", 3, rack1),
			others: []kit.Claim{{Key: types.NamespacedName{Namespace: "other", Name: "me"}, Selector: nicX, Created: time.Unix(1, 0)}},
			then:   "other/me has the same nodes (b): choose others"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if conflict := kit.Overlap(tc.me, tc.others, nodes); conflict != nil {
				got = conflict.String()
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("conflict (-want +got):\n%s", diff)
			}
		})
	}
	many := make([]corev1.Node, 0, 9)
	for i := range 9 {
		many = append(many, node(fmt.Sprintf("n%d", i)))
	}
	got := kit.Overlap(claim("me", 2, nil), []kit.Claim{claim("o", 1, nil)}, many).String()
	if want := "ns/o has the same nodes (n0, n1, n2, n3, n4, and 4 more): choose others"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOverlapOfALargeFleet: what is looked at again for each node does not allocate.
func TestOverlapOfALargeFleet(t *testing.T) {
	nodes := make([]corev1.Node, 0, 2000)
	for i := range cap(nodes) {
		nodes = append(nodes, node(fmt.Sprint("n", i), "rack", fmt.Sprint(i%50), "nic", "x"))
	}
	var others []kit.Claim
	for i := range 20 {
		others = append(others, holding(claim(fmt.Sprint("o", i), 2, map[string]string{"rack": fmt.Sprint(i), "nic": "y"}),
			map[string]string{"nic": "y"}))
	}
	me := claim("me", 1, map[string]string{"nic": "x"})
	allocations := testing.AllocsPerRun(3, func() {
		if conflict := kit.Overlap(me, others, nodes); conflict != nil {
			t.Error(conflict)
		}
	})
	if allocations > 2000 {
		t.Errorf("%.0f allocations for %d nodes and %d claims", allocations, len(nodes), len(others))
	}
}

// TestNoNodeIsTwos plays fleets at random: objects come, go and choose other nodes, labels change,
// and whoever is refused nothing writes its Module. At no time does a write give a node to a second
// Module, and at no time are two objects accepted that share one.
func TestNoNodeIsTwos(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7)) // so that it can be repeated
		pick := func(n int) string { return fmt.Sprint(random.IntN(n)) }
		selector := func() map[string]string {
			s := map[string]string{}
			for _, key := range []string{"a", "b"} {
				if random.IntN(3) > 0 {
					s[key] = pick(3)
				}
			}
			return s
		}
		nodes := make([]corev1.Node, 6)
		for i := range nodes {
			nodes[i] = node(fmt.Sprint(i), "a", pick(3), "b", pick(3))
		}
		var claims []kit.Claim
		for step := range 60 {
			switch random.IntN(6) {
			case 0:
				claims = append(claims, claim(fmt.Sprint(step), int64(random.IntN(5)), selector()))
			case 1:
				if len(claims) > 0 {
					claims[random.IntN(len(claims))].Selector = selector()
				}
			case 2:
				if len(claims) > 0 {
					i := random.IntN(len(claims))
					claims = append(claims[:i:i], claims[i+1:]...)
				}
			case 3:
				nodes[random.IntN(len(nodes))].Labels["a"] = pick(3)
			default:
				if len(claims) > 0 {
					write(t, seed, claims, random.IntN(len(claims)), nodes)
				}
			}
			accepted(t, seed, claims, nodes)
		}
	}
}

// write plays the operator for one of the claims.
func write(t *testing.T, seed uint64, claims []kit.Claim, i int, nodes []corev1.Node) {
	t.Helper()
	if kit.Overlap(claims[i], claims, nodes) != nil {
		return
	}
	before := claims[i].Module
	claims[i] = holding(claims[i], claims[i].Selector)
	for j := range claims {
		for k := range nodes {
			had := before != nil && selects(before.Spec.Selector, &nodes[k])
			if j != i && !had && claims[j].Module != nil && selects(claims[j].Module.Spec.Selector, &nodes[k]) &&
				selects(claims[i].Selector, &nodes[k]) {
				t.Fatalf("seed %d: a write gave node %s of %s to %s, too", seed, nodes[k].Name, claims[j].Key, claims[i].Key)
			}
		}
	}
}

func accepted(t *testing.T, seed uint64, claims []kit.Claim, nodes []corev1.Node) {
	t.Helper()
	of := map[string]types.NamespacedName{}
	for i := range claims {
		if kit.Overlap(claims[i], claims, nodes) != nil {
			continue
		}
		for k := range nodes {
			if !selects(claims[i].Selector, &nodes[k]) {
				continue
			}
			if other, taken := of[nodes[k].Name]; taken {
				t.Fatalf("seed %d: %s and %s are both accepted on node %s", seed, other, claims[i].Key, nodes[k].Name)
			}
			of[nodes[k].Name] = claims[i].Key
		}
	}
}

func selects(selector map[string]string, n *corev1.Node) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(n.Labels))
}
