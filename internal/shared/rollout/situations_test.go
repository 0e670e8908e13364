// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// situation is all that decides about one node, of which each can have a few values.
type situation struct {
	live     string // "", asked, other; old: other, in the boot before
	ordered  string // "", asked, other, third, kernel (another), unload, draining
	asks     string // load, unload, unknown
	says     string // the agent about the order: "", in use, failed, reboot; before: of an earlier order
	onReboot bool   // the Module's unloadPolicy
	waits    bool   // the order's
	replaces bool   // inTreeModulesToRemove
	held     bool   // the image is there
	paused   bool   // by the annotation
}

func (s *situation) String() string {
	text := fmt.Sprintf("live=%s ordered=%s asks=%s says=%s", s.live, s.ordered, s.asks, s.says)
	for word, is := range map[string]bool{"onReboot": s.onReboot, "waits": s.waits, "replaces": s.replaces, "held": s.held,
		"paused": s.paused} {
		if is {
			text += " " + word
		}
	}
	return text
}

// situations are all that there can be.
func situations() (all []situation) {
	bools := []bool{false, true}
	for _, live := range []string{"", "asked", "other", "old"} {
		for _, ordered := range []string{"", "asked", "other", "third", "kernel", "unload", "draining"} {
			for _, asks := range []string{"load", "unload", "unknown"} {
				for _, says := range []string{"", "in use", "failed", "reboot", "before"} {
					for i := range 32 {
						s := situation{live, ordered, asks, says, bools[i&1], bools[i>>1&1], bools[i>>2&1], bools[i>>3&1], bools[i>>4&1]}
						if s.possible() {
							all = append(all, s)
						}
					}
				}
			}
		}
	}
	return all
}

// possible: without an order, nothing is said of it.
func (s *situation) possible() bool {
	return (s.ordered != "" || s.says == "" && !s.waits) && (s.asks == "load" || !s.onReboot && !s.replaces)
}

// facts are the objects that say so.
func (s *situation) facts() *rollout.Facts {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.NodeInfo.BootID = "now"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	build := func(what string) (*v1beta1.ModuleConfig, string) {
		c := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "r/nic:" + what}
		if what == "kernel" {
			c.KernelVersion = "5.10.0"
		}
		return &c, what
	}
	f := &rollout.Facts{Node: node, OnReboot: s.onReboot, Replaces: s.replaces, Paused: s.paused, Unknown: s.asks == "unknown"}
	if s.asks == "load" {
		f.Config, f.Delivery = build("asked")
	}
	if s.held {
		f.Artifacts = []v1beta1.NodeArtifact{{ID: "asked"}, {ID: "other"}}
	}
	switch s.live {
	case "asked", "other":
		c, id := build(s.live)
		f.Live = &v1beta1.NodeModuleStatus{Config: c, BootID: "now", Observed: &v1beta1.ObservedModule{Delivery: id},
			LastTransitionTime: metav1.NewTime(noon)}
	case "old":
		c, id := build("other")
		f.Live = &v1beta1.NodeModuleStatus{Config: c, BootID: "then", Observed: &v1beta1.ObservedModule{Delivery: id}}
	}
	if s.ordered != "" {
		what := s.ordered
		f.Order = &v1beta1.NodeModuleSpec{Paused: s.paused}
		switch what {
		case "unload":
			f.Order.State, what = v1beta1.NodeModuleAbsent, "other"
		case "draining":
			f.Order.State, what = v1beta1.NodeModuleDraining, "other"
		}
		c, id := build(what)
		f.Order.Config, f.Order.Delivery = *c, &v1beta1.Delivery{ID: id}
		if s.waits {
			f.Order.UnloadPolicy = v1beta1.UnloadOnReboot
		}
	}
	switch s.says {
	case "in use":
		f.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse}
	case "failed":
		f.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed}
	case "reboot":
		f.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonRebootRequired}
	case "before":
		f.Attempt = &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed, Order: "another"}
	}
	return f
}

// context is what else there is.
type context struct{ pause, failure, noPlace, noProof bool }

func contexts() (all []context) {
	for i := range 16 {
		all = append(all, context{i&1 > 0, i>>1&1 > 0, i>>2&1 > 0, i>>3&1 > 0})
	}
	return all
}

func (c context) plan(n rollout.Node) *rollout.Plan {
	nodes := []rollout.Node{n}
	policy := rollout.Policy{MaxUnavailable: intstr.FromInt32(3), PauseOnFailure: true, Paused: c.pause, Trial: true}
	if c.failure {
		nodes = append(nodes, given("x", failed))
	}
	if c.noPlace {
		nodes = append(nodes, given("y", rests), behind("z1", away), behind("z2", away), behind("z3", away))
	}
	if !c.noProof {
		nodes = append(nodes, given("p", build("asked"), func(n *rollout.Node) { n.Since = noon.Add(-1) }))
	} else {
		nodes = append(nodes, given("t", build("asked"))) // on trial
	}
	return rollout.Make(nodes, policy, noon)
}

// loads reports whether the node gets an order now for what is asked for, which it did not have.
// One whose devices are being given back has begun.
func (s *situation) loads(p *rollout.Plan) bool {
	return s.asks == "load" && s.ordered != "asked" && s.ordered != "draining" && !s.paused && !p.Hold["n"]
}

func (s *situation) serves() bool { return s.live == "asked" || s.live == "other" }

// TestEachSituation: whatever a node has, has been told and is asked for, there is one answer, and
// it keeps what upgrades.md says.
func TestEachSituation(t *testing.T) {
	rules := map[string]func(*situation, context, *rollout.Plan, rollout.Node) bool{
		"a node begins, or is held, not both": func(_ *situation, _ context, p *rollout.Plan, _ rollout.Node) bool {
			return !p.Start["n"] || !p.Hold["n"]
		},
		"the annotation stops everything": func(s *situation, _ context, p *rollout.Plan, _ rollout.Node) bool {
			return !s.paused || !p.Start["n"]
		},
		"what cannot be told changes nothing": func(s *situation, _ context, p *rollout.Plan, _ rollout.Node) bool {
			return s.asks != "unknown" || !p.Start["n"]
		},
		"spec.rollout.paused lets nothing else go live": func(s *situation, c context, p *rollout.Plan, _ rollout.Node) bool {
			return !c.pause || !s.loads(p) || s.live == "asked" || !s.serves() && s.ordered == "kernel"
		},
		"what serves stays for a failure": func(s *situation, c context, p *rollout.Plan, _ rollout.Node) bool {
			return !c.failure || !s.loads(p) || s.live != "other"
		},
		"what serves stays without a place": func(s *situation, c context, p *rollout.Plan, n rollout.Node) bool {
			return !c.noPlace || !s.loads(p) || s.live != "other" || n.Stage == rollout.AtBoot || n.Changing
		},
		"a node that another order changes counts": func(s *situation, c context, p *rollout.Plan, n rollout.Node) bool {
			return !n.Changing || c.plan(rollout.Node{Name: "n", Ready: true}).Unavailable < p.Unavailable
		},
		"where nothing is live, the newest order comes": func(s *situation, c context, p *rollout.Plan, n rollout.Node) bool {
			lost := s.live == "" && s.ordered != "draining" && (s.ordered != "other" || s.says == "in use" || s.says == "failed" || !s.held)
			return s.asks != "load" || !lost || s.replaces || s.paused || c.pause || c.noProof || s.ordered == "asked" || s.loads(p)
		},
		"what is live and asked for is ordered": func(s *situation, _ context, p *rollout.Plan, _ rollout.Node) bool {
			has := s.ordered == "" || s.ordered == "asked" || s.ordered == "draining"
			return s.live != "asked" || s.asks != "load" || s.paused || has || s.loads(p)
		},
		"what is told to go, and may at any moment, counts": func(s *situation, c context, p *rollout.Plan, n rollout.Node) bool {
			return !s.serves() || s.ordered != "unload" || s.waits || s.paused || s.says == "failed" || s.says == "reboot" ||
				s.asks == "unknown" || c.plan(rollout.Node{Name: "n", Ready: true}).Unavailable < p.Unavailable
		},
	}
	broken := map[string][]string{}
	number := 0
	for _, s := range situations() {
		n := rollout.Observe(s.facts())
		for _, c := range contexts() {
			number++
			p := c.plan(n)
			for name, holds := range rules {
				if !holds(&s, c, p, n) {
					broken[name] = append(broken[name], fmt.Sprintf("%s %+v: %+v", s.String(), c, n.Stage))
				}
			}
		}
	}
	for name, all := range broken {
		t.Errorf("%s: %d of %d\n%s", name, len(all), number, strings.Join(all[:min(len(all), 5)], "\n"))
	}
}
