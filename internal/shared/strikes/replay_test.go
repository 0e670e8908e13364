// SPDX-License-Identifier: Apache-2.0

package strikes_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/shared/strikes"
)

// cluster replays a rollout: real fuses, a verdict every minute, and orders to a few nodes at a
// time.
type cluster struct {
	*testing.T
	now   time.Time
	nodes []*machine
	// wanted is the delivery that the Module asks for, and bad those that take a node down when they
	// are loaded.
	wanted string
	bad    map[string]bool
	// slots is how many nodes get a new order per minute.
	slots int
}

type machine struct {
	name   string
	fuse   *fuse.Fuse
	boot   int
	config *v1beta1.NodeModulesConfig
	live   string
	downs  int
}

func newCluster(t *testing.T, nodes, slots int) *cluster {
	c := &cluster{T: t, now: minute(0), slots: slots, bad: map[string]bool{}}
	for i := range nodes {
		m := &machine{name: fmt.Sprintf("node-%02d", i)}
		m.config = &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
		var err error
		if m.fuse, err = fuse.Open(t.TempDir(), statefile.NoSync); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.fuse.Close() })
		c.nodes = append(c.nodes, m)
		c.reboot(m)
	}
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) reboot(m *machine) {
	m.boot, m.live = m.boot+1, ""
	_, err := m.fuse.Boot(fmt.Sprintf("%s-%d", m.name, m.boot), nil, c.now)
	c.must(err)
}

// order is the node's only entry; nil: none.
func (m *machine) order() *v1beta1.NodeModuleSpec {
	if len(m.config.Spec.Modules) == 0 {
		return nil
	}
	return &m.config.Spec.Modules[0]
}

// operate is the operator's part of a minute.
func (c *cluster) operate() {
	var fleet strikes.Fleet
	for _, m := range c.nodes {
		fleet.Add(m.config)
	}
	v := fleet.Judge(nic, time.Time{})
	given := 0
	for _, m := range c.nodes {
		o := m.order()
		if o == nil || o.Delivery.ID != c.wanted {
			if _, held := v.Held[c.wanted]; held || given == c.slots {
				continue
			}
			given++
			m.config.Spec.Modules = []v1beta1.NodeModuleSpec{{
				ModuleItem: v1beta1.ModuleItem{Namespace: nic.Namespace, Name: nic.Name}, Delivery: &v1beta1.Delivery{ID: c.wanted},
			}}
			continue
		}
		if at, ok := v.Excuse[m.name]; ok {
			o.Excused = &metav1.Time{Time: at}
		}
	}
}

// work is an agent's part of a minute, as the agent does it; cut ends the node's power in the
// middle of a load.
func (c *cluster) work(m *machine, cut bool) {
	c.must(second(m.fuse.Settle(c.now)))
	o := m.order()
	if o == nil || m.live == o.Delivery.ID {
		return
	}
	b := fuse.Build{Module: "nic", BuildID: o.Delivery.ID}
	kept := false
	for _, s := range m.fuse.List(c.now) {
		if s.Build == b && o.Excused != nil && !s.Began.After(o.Excused.Time) {
			excused, err := m.fuse.Excuse(b, c.now)
			c.must(err)
			kept = !excused
		}
	}
	if hold, ok := m.fuse.Allowed(b, c.now); !ok {
		for _, s := range m.fuse.List(c.now) {
			if s.Build == b {
				m.config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: nic.Namespace, Name: nic.Name, Message: hold.Why,
					Strike: &v1beta1.Strike{
						Delivery: o.Delivery.ID, Build: b.String(), Began: metav1.NewTime(s.Began), Kept: kept,
					}}}
			}
		}
		return
	}
	c.must(m.fuse.Intent(b, c.now))
	if cut || c.bad[o.Delivery.ID] {
		m.downs++
		c.reboot(m)
		return
	}
	m.live, m.config.Status.Attempts = o.Delivery.ID, nil
	c.must(m.fuse.Done(b, true, c.now))
}

func second[T any](_ T, err error) error { return err }

func (c *cluster) run(minutes int) {
	for range minutes {
		c.operate()
		for _, m := range c.nodes {
			c.work(m, false)
		}
		c.now = c.now.Add(time.Minute)
	}
}

// tell counts nodes that run what is wanted, those that went down, and how often any did.
func (c *cluster) tell() string {
	live, down, most := 0, 0, 0
	for _, m := range c.nodes {
		if m.live == c.wanted {
			live++
		}
		if m.downs > 0 {
			down++
		}
		most = max(most, m.downs)
	}
	return fmt.Sprintf("live %d, went down %d, at most %d times", live, down, most)
}

func (c *cluster) says(what, then string) {
	c.Helper()
	if got := c.tell(); got != then {
		c.Errorf("%s: %s, want %s", what, got, then)
	}
}

func TestABadBuildStopsWithTheNodesThatGotIt(t *testing.T) {
	c := newCluster(t, 20, 1)
	c.wanted = "good"
	c.run(25)
	c.says("a good build", "live 20, went down 0, at most 0 times")
	c.wanted, c.bad["worse"] = "worse", true
	c.run(23 * 60)
	// The second node gets its order before the first is back and says what happened.
	c.says("a bad one", "live 0, went down 2, at most 2 times")
	still := 0
	for _, m := range c.nodes {
		if m.live == "good" {
			still++
		}
	}
	if still != 18 {
		t.Errorf("%d nodes run what they ran, want 18", still)
	}
	c.wanted = "mended"
	c.run(25)
	c.says("the next one", "live 20, went down 2, at most 2 times")
}

func TestAPowerCutHoldsNothing(t *testing.T) {
	c := newCluster(t, 20, 10)
	c.wanted = "good"
	c.operate()
	for _, m := range c.nodes {
		c.work(m, true)
	}
	c.says("ten nodes lost their power in a load", "live 0, went down 10, at most 1 times")
	c.now = c.now.Add(time.Minute)
	c.run(5)
	c.says("soon after", "live 20, went down 10, at most 1 times")
}

// TestABuildThatKillsManyAtOnceIsExcusedOnce: it looks like a power cut, and must not go on for
// ever.
func TestABuildThatKillsManyAtOnceIsExcusedOnce(t *testing.T) {
	c := newCluster(t, 100, 10)
	c.wanted, c.bad["worse"] = "worse", true
	c.run(20 * 60)
	// Ten a minute, until the first ones have been excused, have tried again and are back: the fourth
	// minute.
	c.says("a bad build on many nodes", "live 0, went down 40, at most 3 times")
}
