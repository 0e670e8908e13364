// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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
	build  func(image, kernel string) string
	writes map[string][]write
}

// write is what one write left of a NodeModulesConfig or a Node.
type write struct {
	revision       int64
	received, done time.Time
	by             string
	config         *config // else it is of the Node
	ready          bool
	bootID         string
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
	return &History{module: module, build: build, writes: map[string][]write{}}
}

// Add reads further requests. Those that changed nothing, or something else, are left out.
func (h *History) Add(requests []audit.Request) error {
	for _, r := range requests {
		if r.ResponseStatus.Code/100 != 2 || len(r.Object) == 0 || !r.IsWrite() {
			continue
		}
		if err := h.add(r); err != nil {
			return fmt.Errorf("read %s %s %s of the audit log: %w", r.Verb, r.Resource(), r.ObjectRef.Name, err)
		}
	}
	return nil
}

func (h *History) add(r audit.Request) error {
	w := write{received: r.Received, done: r.Done, by: r.UserAgent}
	var meta metav1.ObjectMeta
	switch r.ObjectRef.Resource {
	case "nodemodulesconfigs":
		var nmc v1beta1.NodeModulesConfig
		if err := json.Unmarshal(r.Object, &nmc); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		meta, w.config = nmc.ObjectMeta, h.read(&nmc)
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
	return nil
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

// Node is what the history says about one node. Gaps counts changes of its orders that the API server did not write down:
// a NodeModulesConfig's generation rises by one with each.
func (h *History) Node(name string) (n Node, gaps int) {
	n.Name = name
	writes := slices.Clone(h.writes[name])
	slices.SortStableFunc(writes, func(a, b write) int { return cmp.Compare(a.revision, b.revision) })
	writes = slices.CompactFunc(writes, func(a, b write) bool { return a.revision == b.revision }) // a write that changes nothing
	var now config
	var node write
	for _, w := range writes {
		if c := w.config; c != nil {
			if c.uid == now.uid {
				gaps += int(max(0, c.generation-now.generation-1))
			}
			now = *c
			n.order(w)
		} else {
			node = w
		}
		up := node.ready && now.live && now.bootID == node.bootID
		if i := len(n.Sights) - 1; i < 0 {
			n.Sights = append(n.Sights, Sight{From: w.done, Up: up})
		} else if n.Sights[i].Up != up { // answers to writes at the same time may overtake each other
			n.Sights = append(n.Sights, Sight{From: latest(w.done, n.Sights[i].From), Up: up})
		}
	}
	return n, gaps
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
	if i := len(n.Orders) - 1; i >= 0 && n.Orders[i].Absent == o.Absent && n.Orders[i].Want == o.Want {
		return
	}
	o.Revision, o.Received, o.Done, o.By = w.revision, w.received, w.done, w.by
	n.Orders = append(n.Orders, *o)
}
