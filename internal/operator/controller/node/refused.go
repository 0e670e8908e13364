// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

// maxLabels is how many labels a message names.
const maxLabels = 3

// refusals are the nodes of which the API server refuses the labels that the labeler wants: it
// notes them, and the reporter tells their Modules. A new process tries again, and so knows them,
// too.
type refusals struct {
	mu      sync.Mutex
	nodes   map[string]refusal
	changed func(labels []string)
}

// refusal is of some labels of a node, for the same reason.
type refusal struct {
	labels []string
	why    string
}

// note remembers what came of the last write of a node's labels; nil: it was done, or there was
// nothing to write.
func (r *refusals) note(node string, labels []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, now := r.nodes[node], refusal{}
	if kube.Refused(err) {
		now = refusal{labels: slices.Sorted(slices.Values(labels)), why: err.Error()}
	}
	if slices.Equal(before.labels, now.labels) && before.why == now.why {
		return
	}
	if delete(r.nodes, node); len(now.labels) > 0 {
		if r.nodes == nil {
			r.nodes = map[string]refusal{}
		}
		r.nodes[node] = now
	}
	if r.changed != nil {
		r.changed(slices.Concat(before.labels, now.labels))
	}
}

// of says what is refused of labels that speak of a Module on a node, or nil.
func (r *refusals) of(node string, speaking map[string]bool) *reasons.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused := r.nodes[node]
	labels := slices.DeleteFunc(slices.Clone(refused.labels), func(l string) bool { return !speaking[l] })
	if len(labels) == 0 {
		return nil
	}
	return &reasons.Problem{Reason: v1beta1.ReasonWriteRefused, Message: fmt.Sprintf(
		"the API server refuses to change the label %s of the node: %s", words.List(labels, maxLabels), refused.why)}
}

// speakingOf are the labels of nodes that speak of a Module.
func speakingOf(m *v1beta1.Module) map[string]bool {
	return nodemarks.Speaking([]types.NamespacedName{{Namespace: m.Namespace, Name: m.Name}})
}

// changesOfRefusals feeds the reporter with the Modules of whose labels something is refused, or no
// longer.
func (r *reporter) changesOfRefusals() source.Source {
	return source.Func(func(ctx context.Context, q watch.Queue) error {
		r.refused.mu.Lock()
		defer r.refused.mu.Unlock()
		r.refused.changed = func(labels []string) {
			go func() { // the labeler waits for nobody
				for _, request := range watch.Requests(ctx, r.client, &v1beta1.ModuleList{}, func(m *v1beta1.Module) bool {
					speaking := speakingOf(m)
					return slices.ContainsFunc(labels, func(l string) bool { return speaking[l] })
				}) {
					r.later(q, request.NamespacedName)
				}
			}()
		}
		return nil
	})
}
