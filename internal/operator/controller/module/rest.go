// SPDX-License-Identifier: Apache-2.0

package module

import (
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/operator/nodeplan"
)

// rests remembers the nodes where the last pass of a Module found nothing to do, so that the next
// one looks at what has changed since, and not at all nodes of a large fleet. It is lost with the
// process, which looks at all once more.
type rests struct {
	mu      sync.Mutex
	resting map[types.NamespacedName]*resting
}

// resting are the nodes of one Module, by name, and what they have in common.
type resting struct {
	common common
	nodes  []rest
}

// common is what a pass decides by for all nodes alike.
type common struct {
	// module and images are the versions of the Module and of what is made for it.
	module, images string
	defined        metav1.Time
}

// rest is one node, by the versions of its objects.
type rest struct {
	name, node, config string
	nodeplan.Rest
}

// commonOf is what the nodes of a pass have in common; false: more than is remembered.
func commonOf(snap *snapshot) (common, bool) {
	simple := !snap.leaving() && snap.Policies.Empty() && snap.Unsealed == nil && snap.Devices.Driver == "" &&
		len(snap.Verdict.Held)+len(snap.Verdict.Excuse) == 0
	if !simple {
		return common{}, false
	}
	var images strings.Builder
	for i := range snap.images {
		images.WriteString(snap.images[i].Name + "=" + snap.images[i].ResourceVersion + ",")
	}
	return common{module: snap.Module.ResourceVersion, images: images.String(), defined: snap.Defined}, true
}

// mark marks the nodes that rest.
func (r *rests) mark(snap *snapshot) {
	now, simple := commonOf(snap)
	r.mu.Lock()
	before := r.resting[snap.Key]
	r.mu.Unlock()
	if !simple || before == nil || before.common != now {
		return
	}
	all := before.nodes
	for i := range snap.nodes {
		n := &snap.nodes[i]
		for len(all) > 0 && all[0].name < n.Name {
			all = all[1:]
		}
		if len(all) > 0 && all[0].still(snap, n) {
			n.Rest = &all[0].Rest
		}
	}
}

// still reports whether nothing has changed at a node.
func (r *rest) still(snap *snapshot, n *nodeplan.Node) bool {
	if r.name != n.Name || n.Node == nil || r.node != n.Node.ResourceVersion || r.config != versionOf(n) || len(n.Carriers) > 0 {
		return false
	}
	_, drains := snap.Memory.Drains[n.Name]
	_, unwanted := snap.Memory.Unwanted[n.Node.UID]
	return !drains && !unwanted
}

// versionOf is that of the node's NodeModulesConfig; empty: it has none.
func versionOf(n *nodeplan.Node) string {
	if n.Config == nil {
		return ""
	}
	return n.Config.ResourceVersion
}

// note remembers where there is nothing to do.
func (r *rests) note(p *plan) {
	now, simple := commonOf(p.snapshot)
	if !simple {
		r.forget(p.Key)
		return
	}
	r.mu.Lock()
	before := r.resting[p.Key]
	r.mu.Unlock()
	found := &resting{common: now}
	if before != nil { // nearly always a few more than before
		found.nodes = make([]rest, 0, len(before.nodes)+len(before.nodes)/16)
	}
	for i := range p.plans {
		pl := &p.plans[i]
		if !pl.Rests() {
			continue
		}
		n := pl.Node
		found.nodes = append(found.nodes, rest{name: n.Name, node: n.Node.ResourceVersion, config: versionOf(n), Rest: p.Rest(pl)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resting == nil {
		r.resting = map[types.NamespacedName]*resting{}
	}
	r.resting[p.Key] = found
}

// forget drops a Module.
func (r *rests) forget(module types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resting, module)
}
