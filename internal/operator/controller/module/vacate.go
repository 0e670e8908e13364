// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/operator/nodeplan"
	"github.com/drover-project/drover/internal/shared/drain"
	"github.com/drover-project/drover/internal/shared/hostname"
	"github.com/drover-project/drover/internal/shared/kube"
)

// evictTime bounds the evictions of one pass: a slow webhook must not stop other nodes.
const evictTime = 15 * time.Second

// vacancy is a node that is emptied, or freed of pods, or whose cordon ends.
type vacancy struct {
	plan *nodeplan.Plan
	nodeplan.Vacancy
}

// vacate empties the nodes whose turn it is, and evicts pods that hold a kernel module which is to
// go. What keeps a node from its change is a hold of its plan and stops no other; the error is
// about the pass itself.
func (c *Controller) vacate(ctx context.Context, p *plan) error {
	var nodes []*vacancy
	for i := range p.plans {
		if d := &p.plans[i].Drain; d.Empty || len(d.Evict) > 0 || d.Uncordon {
			nodes = append(nodes, &vacancy{plan: &p.plans[i]})
		}
	}
	prepare := func(ctx context.Context, v *vacancy) error { return c.prepare(ctx, p.Key, v) }
	if err := kube.Each(ctx, c.options.Parallelism, nodes, prepare); err != nil {
		return fmt.Errorf("prepare nodes for their turn: %w", err)
	}
	tried := map[*nodeplan.Plan]*nodeplan.Vacancy{}
	var pods []*nodeplan.Leaver
	for _, v := range nodes {
		tried[v.plan] = &v.Vacancy
		for i := range v.Pods {
			if l := &v.Pods[i]; !v.Kept && !drain.Leaving(l.Pod) {
				pods = append(pods, l)
			}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	// What there was no time for is asked by the next pass.
	if err := kube.Each(bounded, c.options.Parallelism, pods, c.evict); err != nil && ctx.Err() != nil {
		return fmt.Errorf("evict pods: %w", err)
	}
	now, waits, seen := c.options.Clock.Now(), map[string]nodeplan.Wait{}, map[string]nodeplan.Seen{}
	for i := range p.plans {
		pl := &p.plans[i]
		hold, wait := pl.Vacated(tried[pl], p.Memory.Drains[pl.Node.Name], now)
		if hold != nil {
			pl.Holds = append(pl.Holds, *hold)
		}
		if wait != (nodeplan.Wait{}) {
			waits[pl.Node.Name] = wait
		}
		if s := pl.Saw(tried[pl], p.Memory.Seen[pl.Node.Name]); s != nil {
			seen[pl.Node.Name] = *s
		}
	}
	c.drains.note(p.Key, waits)
	c.holders.note(p.Key, seen)
	return nil
}

// prepare lists who has to leave a node, and cordons it unless it cannot be emptied.
func (c *Controller) prepare(ctx context.Context, key types.NamespacedName, v *vacancy) error {
	d, node := &v.plan.Drain, v.plan.Node.Name
	if d.Empty || len(d.Evict) > 0 {
		var pods corev1.PodList
		// The cache holds only what is made for Modules.
		if err := c.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			v.Refused = fmt.Sprintf("list the pods of node %s: %v", node, err)
			return ctx.Err()
		}
		inTheWay := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return c.itself(&pod) || !d.InTheWay(node, &pod) })
		v.Vacancy = d.Vacancy(inTheWay)
		v.plan.Look(&v.Vacancy, inTheWay)
		if v.Spared && d.Empty {
			return ctx.Err()
		}
	}
	change, what := drain.Uncordon, "the cordon cannot be taken back"
	if d.Empty {
		change, what = drain.Cordon, "the node cannot be cordoned"
	}
	if d.Empty || d.Uncordon {
		err := c.mark(ctx, key, node, change)
		if v.Outdated = apierrors.IsConflict(err); err != nil && !v.Outdated {
			v.Refused = what + ": " + err.Error()
		}
		v.Kept = v.Kept || d.Empty && err != nil
	}
	return ctx.Err()
}

// itself reports whether a pod is the one that this operator runs in.
func (c *Controller) itself(pod *corev1.Pod) bool {
	return c.options.Self.Name != "" && hostname.Of(pod.Name) == c.options.Self.Name && pod.Namespace == c.options.Self.Namespace
}

// evict asks for a pod's eviction and notes the answer. The next pass asks again. Another pod that
// has got its name meanwhile is not evicted: nobody has looked at it.
func (c *Controller) evict(ctx context.Context, l *nodeplan.Leaver) error {
	eviction := &policyv1.Eviction{}
	eviction.Name, eviction.Namespace = l.Pod.Name, l.Pod.Namespace
	eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.Pod.UID}}
	switch err := c.client.SubResource("eviction").Create(ctx, l.Pod, eviction); {
	case err == nil:
		l.Said = nodeplan.Ending
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		l.Said = ""
	case ctx.Err() == nil:
		l.Said, l.Refused = refusalOf(err), true
	}
	return ctx.Err()
}

// refusalOf is why an eviction was refused: the budget, by name, where it is one.
func refusalOf(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Message != "" {
				text = cause.Message
			}
		}
	}
	return text
}

// mark changes a node's cordon, in a write that says for whom.
func (c *Controller) mark(
	ctx context.Context, key types.NamespacedName, name string, change func(*corev1.Node, types.NamespacedName) ([]byte, error),
) error {
	node := &corev1.Node{}
	// The cache keeps little of nodes, and the cordon is decided on what stands now.
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	patch, err := change(node, key)
	if patch == nil || err != nil {
		return err
	}
	if err := c.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerDrain); err != nil {
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	return nil
}
