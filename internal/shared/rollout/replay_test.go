// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// cluster plays nodes and their agents, a second at a time, on the objects that the planner really
// reads.
type cluster struct {
	*testing.T
	now     time.Time
	nodes   []*machine
	target  string
	policy  rollout.Policy
	started []string
	// bad says where a version fails.
	bad func(node, version string) bool
}

type machine struct {
	name        string
	down        bool
	boot        int
	order, live string
	// kernel runs, and orderKernel is what the order is for.
	kernel, orderKernel int
	since               time.Time
	rolledBack          bool
	held                map[string]bool
	coming              string
	// reloading counts the seconds until what is ordered is live.
	reloading int
}

func newCluster(t *testing.T, n int, policy rollout.Policy) *cluster {
	c := &cluster{T: t, now: noon, target: "2", policy: policy, bad: func(string, string) bool { return false }}
	for i := range n {
		c.nodes = append(c.nodes, &machine{name: fmt.Sprintf("n%02d", i), order: "1", live: "1", held: map[string]bool{"1": true}})
	}
	return c
}

func config(version string, kernel int) v1beta1.ModuleConfig {
	return v1beta1.ModuleConfig{KernelVersion: fmt.Sprintf("6.%d", kernel), ContainerImage: "r/nic:" + version}
}

// seen is what the planner sees of a node.
func (c *cluster) seen(m *machine) rollout.Node {
	status := corev1.ConditionTrue
	if m.down {
		status = corev1.ConditionFalse
	}
	want := config(c.target, m.kernel)
	f := rollout.Facts{
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: fmt.Sprint(m.boot)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		}},
		Entry:  rollout.Entry{Order: &v1beta1.NodeModuleSpec{Config: config(m.order, m.orderKernel), Delivery: &v1beta1.Delivery{ID: m.order}}},
		Config: &want, Delivery: c.target,
	}
	if m.live != "" {
		f.Live = &v1beta1.NodeModuleStatus{
			Config: ptr.To(config(m.live, m.kernel)), BootID: fmt.Sprint(m.boot), LastTransitionTime: metav1.NewTime(m.since),
			Observed: &v1beta1.ObservedModule{Delivery: m.live},
		}
	}
	if m.rolledBack {
		f.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonRolledBack}
	}
	for id := range m.held {
		f.Artifacts = append(f.Artifacts, v1beta1.NodeArtifact{ID: id})
	}
	return rollout.Observe(&f)
}

func (c *cluster) plan() *rollout.Plan {
	var nodes []rollout.Node
	for _, m := range c.nodes {
		nodes = append(nodes, c.seen(m))
	}
	return rollout.Make(nodes, c.policy, c.now)
}

// unavailable are the nodes that do not serve, by what the nodes themselves know.
func (c *cluster) unavailable() int {
	n := 0
	for _, m := range c.nodes {
		if m.down || m.live == "" || m.reloading > 0 {
			n++
		}
	}
	return n
}

// second plans, does the first few acts of the plan (the operator may be killed then), and lets the
// nodes go on.
func (c *cluster) second(acts int) *rollout.Plan {
	c.Helper()
	p := c.plan()
	for _, m := range c.nodes {
		switch {
		case acts <= 0:
		case p.Start[m.name] && (m.order != c.target || m.orderKernel != m.kernel):
			if m.live != "" && !m.down && m.reloading == 0 && c.unavailable()+1 > p.Limit {
				c.Fatalf("%s: begins with %s while %d are unavailable, and %d may be", c.now.Format("15:04:05"), m.name, c.unavailable(), p.Limit)
			}
			if !m.held[c.target] && m.live != "" {
				c.Fatalf("%s is begun with before it holds the image", m.name)
			}
			if m.orderKernel != m.kernel {
				m.held[c.target] = true // a first load, which takes the image with it
			}
			m.order, m.orderKernel, m.rolledBack, m.reloading = c.target, m.kernel, false, 3
			c.started = append(c.started, m.name)
			acts--
		case p.Deliver[m.name] && m.coming == "" && !m.down:
			m.coming = c.target
			acts--
		}
	}
	c.now = c.now.Add(time.Second)
	for _, m := range c.nodes {
		m.tick(c)
	}
	return p
}

// tick is what a node's agent does in a second.
func (m *machine) tick(c *cluster) {
	if m.down {
		return
	}
	if m.coming != "" {
		m.held[m.coming], m.coming = true, ""
	}
	if m.reloading == 0 {
		return
	}
	m.reloading--
	switch {
	case m.reloading > 0:
		m.live = ""
	case c.bad(m.name, m.order):
		m.live, m.since, m.rolledBack = "1", c.now, true
	default:
		m.live, m.since = m.order, c.now
	}
}

// have are the versions that are live, with their nodes' number.
func (c *cluster) have() string {
	n := map[string]int{}
	for _, m := range c.nodes {
		n[m.live]++
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d of %q", n[v], v))
	}
	return strings.Join(parts, ", ")
}

func (c *cluster) run(seconds int) {
	c.Helper()
	for range seconds {
		c.second(len(c.nodes))
	}
}

func (c *cluster) is(want string) {
	c.Helper()
	if got := c.have(); got != want {
		c.Fatalf("live: %s; want %s", got, want)
	}
}

var careful = rollout.Policy{MaxUnavailable: intstr.FromInt32(3), Trial: true, PauseOnFailure: true, Soak: 20 * time.Second}

func TestReplaySuccess(t *testing.T) {
	c := newCluster(t, 10, careful)
	c.run(10)
	c.is(`9 of "1", 1 of "2"`)
	c.run(300)
	c.is(`10 of "2"`)
	if p := c.plan(); p.Done != 10 || p.Waiting+p.Underway+p.Unavailable != 0 || len(p.Start) != 0 || !p.Again.IsZero() {
		t.Errorf("at the end: %+v", p)
	}
	if want := []string{"n00", "n01", "n02", "n03"}; !slices.Equal(c.started[:4], want) {
		t.Errorf("begun in the order %v", c.started)
	}
}

func TestReplayThirdNodeFails(t *testing.T) {
	c := newCluster(t, 10, careful)
	c.bad = func(node, version string) bool { return node == "n02" && version == "2" }
	c.run(300)
	c.is(`7 of "1", 3 of "2"`) // the first, and with n02 the two others of its step
	if p := c.plan(); p.Halt != rollout.HaltFailed || p.Reason != v1beta1.ReasonRolledBack || !slices.Equal(p.Failed, []string{"n02"}) {
		t.Errorf("the plan is %+v", p)
	}

	c.target = "3"
	c.run(400)
	c.is(`10 of "3"`)
}

func TestReplayNodeDiesMidway(t *testing.T) {
	c := newCluster(t, 10, careful)
	for len(c.started) < 3 {
		c.second(10)
	}
	dead := c.nodes[1]
	dead.down = true
	c.run(400)
	c.is(`1 of "", 9 of "2"`)
	if p := c.plan(); p.Halt != "" || p.Unavailable != 1 || p.Underway != 1 {
		t.Errorf("the plan is %+v", p)
	}
	dead.down = false
	dead.boot++
	dead.live, dead.reloading = "", 2
	c.run(60)
	c.is(`10 of "2"`)
}

func TestReplayPolicyChangesMidway(t *testing.T) {
	c := newCluster(t, 10, careful)
	c.run(40)
	c.policy.Paused = true
	c.run(10)
	before := len(c.started)
	c.run(200)
	if len(c.started) != before {
		t.Fatalf("paused, and begun with %v", c.started[before:])
	}
	c.policy = rollout.Policy{MaxUnavailable: intstr.FromString("10%")}
	c.run(100)
	c.is(`10 of "2"`)
}

// TestReplayOperatorKilledAtEveryStep: whatever part of a plan was done, the next operator goes on
// from what it sees.
func TestReplayOperatorKilledAtEveryStep(t *testing.T) {
	for acts := range 4 {
		c := newCluster(t, 10, careful)
		for i := range 900 {
			c.second((acts + i) % 3)
		}
		c.is(`10 of "2"`)
	}
}

// TestNeverMoreThanMaxUnavailable plays fleets at random: nodes die, come back, reboot and fail,
// policies and targets change.
func TestNeverMoreThanMaxUnavailable(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a reproducible game
		policy := rollout.Policy{
			MaxUnavailable: intstr.FromInt32(1 + r.Int32N(4)), Trial: r.IntN(2) == 0, PauseOnFailure: r.IntN(2) == 0,
			Soak: time.Duration(r.IntN(10)) * time.Second,
		}
		c := newCluster(t, 4+r.IntN(12), policy)
		version := 2
		c.bad = func(node, v string) bool { return v != "1" && v != "9" && (len(node)+int(node[2])+int(v[0]))%7 == 0 }
		for range 100 {
			m := c.nodes[r.IntN(len(c.nodes))]
			switch r.IntN(25) {
			case 0:
				m.down = !m.down
			case 1:
				m.boot, m.live = m.boot+1, ""
				if m.orderKernel == m.kernel {
					m.reloading = 2
				}
			case 4, 5: // into another kernel, where the order is of no use
				m.boot, m.kernel, m.live, m.reloading = m.boot+1, m.kernel+1, "", 0
			case 2:
				c.policy.MaxUnavailable = intstr.FromInt32(1 + r.Int32N(4))
			case 3:
				version = min(version+1, 8)
				c.target = fmt.Sprint(version)
			}
			c.second(r.IntN(len(c.nodes) + 1))
		}
		c.target = "9"
		c.policy.Paused = false
		for _, m := range c.nodes {
			m.down = false
		}
		c.run(300)
		c.is(fmt.Sprintf(`%d of "9"`, len(c.nodes)))
	}
}
