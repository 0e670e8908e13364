// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// History is what the API server wrote down about one Module's orders and the nodes.
type History struct {
	module types.NamespacedName
	// build is the build ID of an image's module.
	build func(image, kernel string) string
	// writes are by node, as are unanswered ones: their client went away, killed for one, and they may
	// have happened all the same.
	writes, unanswered map[string][]write
	// clock has all writes by the time of their answer: which revision was reached when.
	clock []write
}

// write is what one write left of a NodeModulesConfig or a Node.
type write struct {
	revision       int64
	received, done time.Time
	by             string
	// status is true for a write that cannot have changed orders.
	status bool
	config *config // else it is of the Node
	// foreign is true for a write of another Module's part, which leaves orders as they are.
	foreign bool
	ready   bool
	bootID  string
}

// config is what a NodeModulesConfig says about the Module.
type config struct {
	uid        types.UID
	generation int64
	order      *Order // nil: none
	// live is true while the kernel module is reported, loaded in that boot.
	live   bool
	bootID string
}

// NewHistory starts with nothing.
func NewHistory(module types.NamespacedName, build func(image, kernel string) string) *History {
	return &History{module: module, build: build, writes: map[string][]write{}, unanswered: map[string][]write{}}
}

// Add reads further requests. Those that changed nothing, or something else, are left out.
func (h *History) Add(requests []audit.Request) error {
	for _, r := range requests {
		var err error
		code := r.ResponseStatus.Code
		switch {
		case !r.IsWrite():
		case code/100 == 2 && len(r.Object) > 0:
			err = h.add(r)
		case (code == 0 || code/100 == 5) && r.Resource() == "nodemodulesconfigs" && len(r.Body) > 0:
			err = h.suspect(r)
		}
		if err != nil {
			return fmt.Errorf("read %s %s %s of the audit log: %w", r.Verb, r.Resource(), r.ObjectRef.Name, err)
		}
	}
	slices.SortStableFunc(h.clock, func(a, b write) int { return a.done.Compare(b.done) })
	return nil
}

func (h *History) add(r audit.Request) error {
	w := write{received: r.Received, done: r.Done, by: r.UserAgent, status: r.ObjectRef.Subresource == "status"}
	var meta metav1.ObjectMeta
	switch r.ObjectRef.Resource {
	case "nodemodulesconfigs":
		var nmc v1beta1.NodeModulesConfig
		if err := json.Unmarshal(r.Object, &nmc); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		meta, w.config, w.foreign = nmc.ObjectMeta, h.read(&nmc), h.foreign(r.URI)
	case "nodes":
		var node corev1.Node
		if err := json.Unmarshal(r.Object, &node); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		meta, w.bootID = node.ObjectMeta, node.Status.NodeInfo.BootID
		w.ready = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	default:
		return nil
	}
	revision, err := strconv.ParseInt(meta.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("its resource version: %w", err)
	}
	w.revision = revision
	h.writes[meta.Name] = append(h.writes[meta.Name], w)
	h.clock = append(h.clock, write{revision: revision, done: w.done})
	return nil
}

// suspect notes a write whose answer nobody got.
func (h *History) suspect(r audit.Request) error {
	var nmc v1beta1.NodeModulesConfig
	if r.Body[0] != '[' { // else it is a JSON patch, which takes the entry out
		if err := json.Unmarshal(r.Body, &nmc); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
	}
	h.unanswered[r.ObjectRef.Name] = append(h.unanswered[r.ObjectRef.Name], write{
		received: r.Received, done: r.Done, by: r.UserAgent, config: h.read(&nmc), foreign: h.foreign(r.URI),
	})
	return nil
}

// foreign says whether a request is for another Module: the field manager is named after it.
func (h *History) foreign(uri string) bool {
	u, err := url.Parse(uri)
	if err != nil {
		return false
	}
	module, found := strings.CutPrefix(u.Query().Get("fieldManager"), "drover/")
	return found && module != h.module.String()
}

// reached is the highest revision that was answered until a time.
func (h *History) reached(t time.Time) int64 {
	var highest int64
	for _, w := range h.clock[:after(h.clock, t, func(w write) time.Time { return w.done })] {
		highest = max(highest, w.revision)
	}
	return highest
}

func (h *History) read(nmc *v1beta1.NodeModulesConfig) *config {
	c := &config{uid: nmc.UID, generation: nmc.Generation}
	for _, e := range nmc.Spec.Modules {
		if e.Namespace == h.module.Namespace && e.Name == h.module.Name {
			c.order = &Order{Absent: e.State == v1beta1.NodeModuleAbsent, Image: e.Config.ContainerImage}
			if !c.order.Absent {
				c.order.Want = What(h.build(e.Config.ContainerImage, e.Config.KernelVersion), e.Config.Modprobe.Parameters)
			}
		}
	}
	for _, s := range nmc.Status.Modules {
		if s.Namespace == h.module.Namespace && s.Name == h.module.Name {
			c.live, c.bootID = true, s.BootID
		}
	}
	return c
}

// Node is what the history says about one node. Gaps counts changes of its orders that the API
// server did not write down: a NodeModulesConfig's generation rises by one with each.
func (h *History) Node(name string) (n Node, gaps int) {
	n.Name = name
	writes := slices.Clone(h.writes[name])
	slices.SortStableFunc(writes, func(a, b write) int { return cmp.Compare(a.revision, b.revision) })
	writes = slices.CompactFunc(writes, func(a, b write) bool { return a.revision == b.revision }) // a write that changes nothing
	unanswered := h.unanswered[name]
	var last, node write
	for _, w := range writes {
		if w.config != nil {
			var lost []write
			var missing int
			unanswered, lost, missing = h.lost(unanswered, last, w)
			gaps += missing
			for _, l := range lost {
				n.order(l)
			}
			n.order(w)
			last = w
		} else {
			node = w
		}
		up := node.ready && last.config != nil && last.config.live && last.config.bootID == node.bootID
		if i := len(n.Sights) - 1; i < 0 {
			n.Sights = append(n.Sights, Sight{From: w.done, Up: up})
		} else if n.Sights[i].Up != up { // answers to writes at the same time may overtake each other
			n.Sights = append(n.Sights, Sight{From: latest(w.done, n.Sights[i].From), Up: up})
		}
	}
	return n, gaps
}

// lost takes out of the unanswered writes those that happened between two of a NodeModulesConfig:
// by its generation there must be so many. They may have come before the first of the two, as long
// as they ended after that. What the second did not change itself is what the last of them left.
// Missing is how many are not in the log: those of other Modules are, too.
func (h *History) lost(unanswered []write, last, next write) (rest, lost []write, missing int) {
	var generation int64
	if last.config != nil && last.config.uid == next.config.uid {
		generation = last.config.generation
	}
	missing = int(next.config.generation - generation)
	if !next.status {
		missing--
	}
	var foreign []write
	for _, w := range slices.Backward(unanswered) {
		switch {
		case missing <= len(lost) || w.done.Before(last.received) || w.received.After(next.done):
			rest = append(rest, w)
		case w.foreign:
			foreign = append(foreign, w)
		case (next.status || next.foreign) && len(lost) == 0 && !same(w.config.order, next.config.order):
			rest = append(rest, w)
		default:
			w.revision = min(max(h.reached(w.done), last.revision+1), next.revision)
			lost = append(lost, w)
		}
	}
	missing -= len(lost)
	happened := min(max(missing, 0), len(foreign))
	rest = append(rest, foreign[happened:]...)
	slices.SortStableFunc(rest, func(a, b write) int { return a.done.Compare(b.done) })
	slices.Reverse(lost)
	return rest, lost, max(missing-happened, 0)
}

func same(a, b *Order) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Absent == b.Absent && a.Want == b.Want)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// order notes what a write of a NodeModulesConfig orders, if that is anything new.
func (n *Node) order(w write) {
	o := w.config.order
	if o == nil {
		return // no order: what the kernel holds, it keeps
	}
	if i := len(n.Orders) - 1; i >= 0 && same(&n.Orders[i], o) {
		return
	}
	o.Revision, o.Received, o.Done, o.By = w.revision, w.received, w.done, w.by
	n.Orders = append(n.Orders, *o)
}
