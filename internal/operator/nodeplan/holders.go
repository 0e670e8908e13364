// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/drain"
)

// Seen is whom an older agent means, which names pods and tells no UIDs: those that ran when the
// process first looked for the pods of that report. A pod that comes back under its name is meant
// by the agent's next report. A new process looks anew.
type Seen struct {
	// Report is the agent's.
	Report v1beta1.NodeModuleAttempt
	// Pods that ran, of those that it names.
	Pods []drain.Meant
}

// of reports whether a node's report is still the one.
func (s *Seen) of(n *Node) bool {
	return n.Attempt != nil && equality.Semantic.DeepEqual(&s.Report, n.Attempt)
}

// holders are the pods that a node's agent says hold the kernel module.
func (p *Pass) holders(n *Node) []drain.Meant {
	if seen, ok := p.Memory.Seen[n.Name]; ok && seen.of(n) {
		return seen.Pods
	}
	pods := make([]drain.Meant, len(n.Attempt.Holders))
	for i, pod := range n.Attempt.Holders {
		pods[i].Pod = pod
		if len(n.Attempt.HolderUIDs) == len(pods) {
			pods[i].UID = types.UID(n.Attempt.HolderUIDs[i])
		}
	}
	return pods
}

// Look notes whom the node's agent means, among the pods that are in the way, if it tells no UIDs.
func (pl *Plan) Look(v *Vacancy, pods []corev1.Pod) {
	named := func(m drain.Meant) bool { return m.UID == "" }
	if !slices.ContainsFunc(pl.Drain.Evict, named) {
		return
	}
	v.Seen = &Seen{Report: *pl.Node.Attempt.DeepCopy()}
	for i := range pods {
		pod := &pods[i]
		if slices.ContainsFunc(pl.Drain.Evict, func(m drain.Meant) bool { return named(m) && m.Is(pod) }) {
			v.Seen.Pods = append(v.Seen.Pods, drain.Meant{Pod: pod.Namespace + "/" + pod.Name, UID: pod.UID})
		}
	}
}

// Saw is what is to be remembered of whom the node's agent means, or nil. v is nil where there was
// nothing to do.
func (pl *Plan) Saw(v *Vacancy, known Seen) *Seen {
	switch {
	case v != nil && v.Seen != nil:
		return v.Seen
	case known.of(pl.Node):
		return &known
	}
	return nil
}
