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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/drain"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/words"
)

const (
	// maxPods is how many pods a message about a drain names.
	maxPods = 3
	// evictTime bounds the evictions of one pass: a webhook that is slow keeps the Module's other nodes waiting for no longer.
	evictTime = 15 * time.Second
	// ending and unasked are said of a pod.
	ending, unasked = "is ending", "not asked yet"
)

// vacancy is a node that is being emptied, or freed of holders, or whose cordon ends.
type vacancy struct {
	step *step
	// refused is what the API server said to the cordon, or to the question for the pods.
	refused string
	// outdated: somebody wrote the node meanwhile.
	outdated bool
	// kept: nobody is evicted, for one of the pods is not to be, or is waited for.
	kept bool
	pods []evictee
}

// evictee is a pod that has to leave.
type evictee struct {
	pod *corev1.Pod
	// said is what it waits for, and refused that it is not allowed to go. Nothing is said of one that is gone.
	said    string
	refused bool
}

// vacate empties the nodes whose turn it is, and evicts who holds a kernel module that shall go. A node that is not empty keeps its order. What is
// refused is told of its node and stops no other; the error is about the pass itself.
func (c *Controller) vacate(ctx context.Context, p *plan) error {
	var nodes []*vacancy
	for i := range p.steps {
		if s := &p.steps[i]; s.empty || s.evict || s.uncordon {
			nodes = append(nodes, &vacancy{step: s})
		}
	}
	if err := kube.Each(ctx, c.options.Parallelism, nodes, c.prepare); err != nil {
		return fmt.Errorf("prepare nodes for their turn: %w", err)
	}
	var pods []*evictee
	for _, v := range nodes {
		for i := range v.pods {
			if e := &v.pods[i]; drain.Leaving(e.pod) {
				e.said = ending
			} else if !v.kept {
				pods = append(pods, e)
			}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	// What there was no time for is asked by the next pass.
	if err := kube.Each(bounded, c.options.Parallelism, pods, c.evict); err != nil && ctx.Err() != nil {
		return fmt.Errorf("evict pods: %w", err)
	}
	c.drains.keep(p.key, nodes, p.hold)
	now := c.options.Clock.Now()
	for _, v := range nodes {
		told := v.settle(p, c.drains.late(p.key, v, now))
		if v.step.empty && told != nil {
			c.drains.pass(p.key, v, now, told)
		}
	}
	return nil
}

// prepare lists who has to leave a node and brings its cordon about. No node is cordoned that cannot be emptied.
func (c *Controller) prepare(ctx context.Context, v *vacancy) error {
	s := v.step
	if s.empty || s.evict {
		pods, err := c.inTheWay(ctx, s)
		if err != nil {
			v.refused = err.Error()
			return ctx.Err()
		}
		if spared := v.judge(pods); spared && s.empty {
			return ctx.Err()
		}
	}
	change, what := drain.Uncordon, "the cordon cannot be taken back"
	if s.empty {
		change, what = drain.Cordon, "the node cannot be cordoned"
	}
	if s.empty || s.uncordon {
		err := c.mark(ctx, s, change)
		if v.outdated = apierrors.IsConflict(err); err != nil && !v.outdated {
			v.refused = what + ": " + err.Error()
		}
		v.kept = v.kept || s.empty && err != nil
	}
	return ctx.Err()
}

// judge notes what becomes of the pods that are in the way, and reports whether one of them is not to be evicted.
func (v *vacancy) judge(pods []corev1.Pod) (spared bool) {
	for i := range pods {
		e := evictee{pod: &pods[i], said: unasked}
		if verdict, why := drain.Judge(e.pod, v.step.options); verdict != drain.Evict {
			e.said, e.refused, v.kept = why, verdict == drain.Spare, true
			spared = spared || e.refused
		}
		v.pods = append(v.pods, e)
	}
	return spared
}

// inTheWay are the pods that have to leave. What the agent names counts only if it runs on the agent's own node.
func (c *Controller) inTheWay(ctx context.Context, s *step) ([]corev1.Pod, error) {
	var pods corev1.PodList
	// The cache holds only what is made for Modules.
	if err := c.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": s.view.name}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", s.view.name, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		name := pod.Namespace + "/" + pod.Name
		named := s.empty || slices.Contains(s.consumers, name) || s.view.attempt != nil && slices.Contains(s.view.attempt.Holders, name)
		return !named || pod.Spec.NodeName != s.view.name || !drain.Goes(&pod)
	}), nil
}

// evict asks for a pod's eviction and notes what came of it: a refusal is no error, and is asked again by the next pass.
func (c *Controller) evict(ctx context.Context, e *evictee) error {
	eviction := &policyv1.Eviction{}
	eviction.Name, eviction.Namespace = e.pod.Name, e.pod.Namespace
	switch err := c.client.SubResource("eviction").Create(ctx, e.pod, eviction); {
	case err == nil:
		e.said = ending
	case apierrors.IsNotFound(err):
		e.said = ""
	case ctx.Err() == nil:
		e.said, e.refused = refusalOf(err), true
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

// open reports whether something keeps the node from its change.
func (v *vacancy) open() bool { return v.refused != "" || v.outdated || len(v.pods) > 0 }

// settle puts what came of it into the plan, and returns what is told of the node, or nil.
func (v *vacancy) settle(p *plan, late bool) *reasons.Problem {
	s := v.step
	s.uncordon = false
	if !v.open() {
		return nil
	}
	p.draining = true
	if s.empty && !s.restores {
		s.request, s.write = nil, nil
	}
	problem := v.problem(late)
	if problem != nil {
		if p.holders == nil {
			p.holders = map[string]reasons.Problem{}
		}
		p.holders[s.view.name] = *problem
	}
	return problem
}

// problem is what keeps a node from being emptied, refusals first; nil: nothing that is worth telling.
// What has taken longer than spec.rollout.drainOptions.timeout counts as one.
func (v *vacancy) problem(late bool) *reasons.Problem {
	if v.refused != "" {
		return &reasons.Problem{Reason: v1beta1.ReasonDrainBlocked, Message: "spec.rollout.drain: " + v.refused}
	}
	var waits, refused []string
	for i := range v.pods {
		switch e := &v.pods[i]; {
		case e.refused:
			refused = append(refused, e.text())
		case e.said != "":
			waits = append(waits, e.text())
		}
	}
	slices.Sort(waits)
	slices.Sort(refused)
	pods := words.List(slices.Concat(refused, waits), maxPods)
	if pods == "" {
		return nil
	}
	since := ""
	if late {
		since = ", for longer than " + v.timeout().String()
	}
	problem := &reasons.Problem{
		Reason: v1beta1.ReasonInUse, Message: "spec.rollout.drain waits for pods to leave" + since + ": " + pods,
	}
	if late || len(refused) > 0 {
		problem.Reason = v1beta1.ReasonDrainBlocked
	}
	return problem
}

// timeout is how long the pods may take.
func (v *vacancy) timeout() time.Duration {
	if t := v.step.options.Timeout; t != nil {
		return t.Duration
	}
	return v1beta1.DefaultDrainTimeout
}

func (e *evictee) text() string { return e.pod.Namespace + "/" + e.pod.Name + " (" + e.said + ")" }

// mark changes a node's cordon, in a write that says for whom.
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
		return fmt.Errorf("patch node %s: %w", node.Name, err)
	}
	return nil
}
