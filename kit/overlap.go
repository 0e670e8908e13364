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
	mine := prepare(&me)
	var rivals []prepared
	for i := range others {
		if others[i].Key != me.Key {
			rivals = append(rivals, prepare(&others[i]))
		}
	}
	var conflict *Conflict
	for i := range nodes {
		node := labels.Set(nodes[i].Labels)
		if !mine.wants.Matches(node) {
			continue
		}
		lost := false
		for j := range rivals {
			if !rivals[j].beats(&mine, node) {
				continue
			}
			if conflict == nil {
				conflict = &Conflict{With: rivals[j].Key}
			}
			if compareKeys(rivals[j].Key, conflict.With) < 0 {
				conflict.With = rivals[j].Key
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

// prepared is a claim whose selectors are made once, and not for each of some thousand nodes.
type prepared struct {
	*Claim
	wants, holds labels.Selector
}

func prepare(c *Claim) prepared {
	p := prepared{Claim: c, wants: labels.SelectorFromSet(c.Selector), holds: labels.Nothing()}
	if c.Module != nil {
		p.holds = labels.SelectorFromSet(c.Module.Spec.Selector)
	}
	return p
}

// beats is true when p keeps another, which wants the node, from having it.
func (p *prepared) beats(other *prepared, node labels.Set) bool {
	holds := p.holds.Matches(node)
	switch {
	case holds != other.holds.Matches(node):
		return holds
	case !p.wants.Matches(node): // both hold it, and p is about to leave
		return false
	}
	return cmp.Or(p.Created.Compare(other.Created), compareKeys(p.Key, other.Key)) < 0
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
