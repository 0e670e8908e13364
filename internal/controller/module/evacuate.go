// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/drain"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/placement"
)

// maxPods is how many pods a message about a drain names.
const maxPods = 3

// evacuate decides what spec.rollout.drain asks for on a node:
//
//	Node:    its turn comes ──► cordoned, pods evicted ──none left──► the order ──► the change is over ──► uncordoned, if it was us
//	Holders: the order ──► the agent names pods that hold the kernel module ──► these evicted ──► it goes
//
// Only where the rollout bounds how many nodes are at it, so the deletion of a Module, which unloads everywhere at once, drains nothing. Nothing
// is remembered but the cordon's mark on the node.
func (pl *planner) evacuate(s *step, a *aim) {
	v := s.view
	if v.node == nil || a.keep && a.leave == "" {
		return
	}
	policy, bounded := pl.drainPolicy()
	ready := bounded && placement.Ready(v.node)
	if ready && policy == v1beta1.DrainNode && s.write != nil && v.inKernel() && disturbs(v.entry, s.write) &&
		s.write.UnloadPolicy != v1beta1.UnloadOnReboot {
		s.empty = true
		return
	}
	if ready && policy != v1beta1.DrainNone && policy != "" && v.attempt != nil && v.attempt.State == v1beta1.AttemptInUse {
		s.evict = len(v.attempt.Holders) > 0
	}
	s.uncordon = drain.Marked(v.node, pl.snap.key) && !pl.underway(s, a)
}

// drainPolicy is the Module's, and whether the rollout bounds how many nodes are drained at a time.
func (pl *planner) drainPolicy() (policy v1beta1.DrainPolicy, bounded bool) {
	if m := pl.snap.module; pl.rollout != nil && m.Spec.Rollout != nil {
		return m.Spec.Rollout.Drain, true
	}
	return v1beta1.DrainNone, false
}

// underway reports whether a change that the node was cordoned for goes on there.
func (pl *planner) underway(s *step, a *aim) bool {
	v := s.view
	switch {
	case v.entry == nil || s.remove:
		return false
	case v.entry.State == v1beta1.NodeModuleDraining:
		return true
	case a.order == nil:
		return v.entry.State == v1beta1.NodeModuleAbsent && v.inKernel()
	case a.stay != nil:
		return false // it has lost its turn
	}
	n := pl.part(v, a)
	return n.Since.IsZero() && n.Failed == "" && !n.Rests
}

// vacate empties the nodes whose turn it is, and evicts who holds a kernel module that shall go. A node that is not empty keeps its order.
func (c *Controller) vacate(ctx context.Context, p *plan) error {
	for i := range p.steps {
		s := &p.steps[i]
		if !s.empty && !s.evict {
			continue
		}
		if s.empty {
			if err := c.cordon(ctx, s); err != nil {
				return err
			}
		}
		pods, err := c.inTheWay(ctx, s)
		if err != nil {
			return err
		}
		waits, err := c.evictAll(ctx, pods)
		if err != nil {
			return err
		}
		if s.empty && len(pods) > 0 {
			s.request, s.write = nil, nil
		}
		if len(pods) > 0 {
			p.draining = true
			p.waitFor(s.view.name, waits)
		}
	}
	return nil
}

// inTheWay are the pods that have to leave. What the agent names counts only if it runs on the agent's own node.
func (c *Controller) inTheWay(ctx context.Context, s *step) ([]corev1.Pod, error) {
	var pods corev1.PodList
	// The cache holds only what is made for Modules.
	if err := c.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": s.view.name}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", s.view.name, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		named := s.empty || slices.Contains(s.view.attempt.Holders, pod.Namespace+"/"+pod.Name)
		return !named || pod.Spec.NodeName != s.view.name || !drain.Goes(&pod)
	}), nil
}

// evictAll asks for the eviction of pods and says of each, by name in order, what it waits for. A budget that does not allow it is no error: the
// next pass asks again.
func (c *Controller) evictAll(ctx context.Context, pods []corev1.Pod) ([]string, error) {
	var waits []string
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		if drain.Leaving(pod) {
			waits = append(waits, name+" (is ending)")
			continue
		}
		eviction := &policyv1.Eviction{}
		eviction.Name, eviction.Namespace = pod.Name, pod.Namespace
		err := c.client.SubResource("eviction").Create(ctx, pod, eviction)
		switch {
		case err == nil:
			waits = append(waits, name+" (is ending)")
		case apierrors.IsNotFound(err):
		case apierrors.IsTooManyRequests(err), apierrors.IsForbidden(err), apierrors.IsInternalError(err):
			waits = append(waits, name+" ("+refusalOf(err)+")")
		default:
			return nil, fmt.Errorf("evict pod %s: %w", name, err)
		}
	}
	slices.Sort(waits)
	return waits, nil
}

// refusalOf is why an eviction was refused: the budget, by name, where it is one.
func refusalOf(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text = cause.Message
		}
	}
	return text
}

// waitFor notes what keeps a node from being emptied.
func (p *plan) waitFor(node string, pods []string) {
	if len(pods) == 0 {
		return
	}
	more := ""
	if n := len(pods) - maxPods; n > 0 {
		pods, more = pods[:maxPods], fmt.Sprintf(" and %d more", n)
	}
	if p.holders == nil {
		p.holders = map[string]delivery.Problem{}
	}
	p.holders[node] = delivery.Problem{
		Reason: v1beta1.ReasonInUse, Message: "spec.rollout.drain waits for pods to leave: " + strings.Join(pods, ", ") + more,
	}
}

// cordon keeps new pods from a node, in a write that says for whom.
func (c *Controller) cordon(ctx context.Context, s *step) error {
	return c.mark(ctx, s, drain.Cordon)
}

// uncordon ends the Module's part in a node's cordon.
func (c *Controller) uncordon(ctx context.Context, s step) error {
	return c.mark(ctx, &s, drain.Uncordon)
}

func (c *Controller) mark(ctx context.Context, s *step, change func(*corev1.Node, types.NamespacedName) ([]byte, error)) error {
	node := &corev1.Node{}
	// The cache keeps little of nodes, and the cordon is decided on what stands now.
	if err := c.live.Get(ctx, client.ObjectKey{Name: s.view.name}, node); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	patch, err := change(node, s.key)
	if patch == nil || err != nil {
		return err
	}
	if err := c.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerDrain); err != nil {
		return fmt.Errorf("cordon or uncordon node %s: %w", node.Name, err)
	}
	return nil
}
