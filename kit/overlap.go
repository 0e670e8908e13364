// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Claim is what one object claims: nodes, for itself.
type Claim struct {
	// Key names the object.
	Key types.NamespacedName
	// Selector chooses the nodes by their labels; all must match, and without any, every node is chosen.
	Selector map[string]string
	// Created is when the object was.
	Created time.Time
	// Module is the Module that the object has already, or nil. The nodes that it selects are held by the object, whatever Selector says by now.
	Module *v1beta1.Module
}

// Conflict says whom nodes are lost to.
type Conflict struct {
	// With names the object that the nodes are lost to; the first by name where there are several.
	With types.NamespacedName
	// Nodes are the names of the nodes that are lost, to whomever, in order.
	Nodes []string
}

// namedNodes is how many nodes a message names.
const namedNodes = 5

// String is the conflict as a message.
func (c *Conflict) String() string {
	names := c.Nodes
	if len(names) > namedNodes {
		names = append(slices.Clone(names[:namedNodes]), fmt.Sprintf("and %d more", len(c.Nodes)-namedNodes))
	}
	return fmt.Sprintf("%s has the same nodes (%s): choose others", c.With, strings.Join(names, ", "))
}

// Overlap returns nil if me may have all the nodes that it selects, or whom it loses which of them to. A node goes to the one whose Module is there
// already; if that is none of them or both, to the older one, and among those of one time to the first by name. So of all that may have their nodes, no
// two share one, and none selects a node that another's Module selects already.
//
// It is for Operator.Check. others may contain me.
func Overlap(me Claim, others []Claim, nodes []corev1.Node) *Conflict {
	var conflict *Conflict
	for i := range nodes {
		if !me.wants(&nodes[i]) {
			continue
		}
		lost := false
		for j := range others {
			if others[j].Key == me.Key || !others[j].beats(&me, &nodes[i]) {
				continue
			}
			if conflict == nil {
				conflict = &Conflict{With: others[j].Key}
			}
			if compareKeys(others[j].Key, conflict.With) < 0 {
				conflict.With = others[j].Key
			}
			lost = true
		}
		if lost {
			conflict.Nodes = append(conflict.Nodes, nodes[i].Name)
		}
	}
	if conflict != nil {
		slices.Sort(conflict.Nodes)
	}
	return conflict
}

// beats is true when c keeps another, which wants the node, from having it.
func (c *Claim) beats(other *Claim, node *corev1.Node) bool {
	holds := c.holds(node)
	switch {
	case holds != other.holds(node):
		return holds
	case !c.wants(node): // both hold it, and c is about to leave
		return false
	}
	return cmp.Or(c.Created.Compare(other.Created), compareKeys(c.Key, other.Key)) < 0
}

func (c *Claim) wants(node *corev1.Node) bool { return selects(c.Selector, node) }

func (c *Claim) holds(node *corev1.Node) bool {
	return c.Module != nil && selects(c.Module.Spec.Selector, node)
}

func selects(selector map[string]string, node *corev1.Node) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(node.Labels))
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
