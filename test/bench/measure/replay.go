// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// node is how far the floor is with one node.
type node struct {
	name string
	sent map[string]audit.Request
	// begun and answered stages, and which version of the NodeModulesConfig each wrote.
	begun, answered map[string]bool
	wrote           map[string]uint64
	// What the watches have shown: the operator, the node's agent.
	operatorSaw, agentSaw uint64
	runs                  map[types.UID]bool // carriers
	plugins               map[types.UID]bool // the device plugin's pods: whether each is ready
	old                   map[types.UID]bool // those of before
	names                 map[types.UID]types.NamespacedName

	carrier, config types.UID
	version         uint64 // of the NodeModulesConfig, the last known
}

// replay sends the recorded requests as the watches show that it is time. As in Drover, each node's
// agent is a client of its own, and the operator has so many requests in flight at a time.
type replay struct {
	*Recording
	send *sender
	// The operator's jobs. What is due for a node that has begun goes first: nodes that all begin
	// before any ends would make a floor that is higher than it need be.
	firsts, others chan job
	done           chan struct{}
	agent          func(job func() error) // runs an agent's job

	mu      sync.Mutex
	started bool
	all     map[string]*node
	left    int
	places  int // that are free
	waiting []*node
}

type job func(context.Context) error

// restartAfter is how long the DaemonSet controller has to restart the device plugin by itself.
const restartAfter = time.Second

// newReplay has so many places for nodes at a time; 0: no limit.
func newReplay(r *Recording, send *sender, places int) *replay {
	if places == 0 {
		places = len(r.nodes)
	}
	p := &replay{
		Recording: r, send: send, firsts: make(chan job, len(r.nodes)), others: make(chan job, len(r.nodes)*(len(r.protocol.stages)+1)),
		done: make(chan struct{}), all: map[string]*node{}, left: len(r.nodes), places: places,
	}
	for name, sent := range r.nodes {
		p.all[name] = &node{
			name: name, sent: sent, begun: map[string]bool{}, answered: map[string]bool{}, wrote: map[string]uint64{},
			runs: map[types.UID]bool{}, plugins: map[types.UID]bool{}, old: map[types.UID]bool{},
			names: map[types.UID]types.NamespacedName{},
		}
	}
	return p
}

// begin sends what waits for nothing.
func (p *replay) begin(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	for _, n := range p.all {
		for pod, ready := range n.plugins {
			n.old[pod] = ready
		}
		p.advance(ctx, n)
	}
}

// saw notes what a watch has shown of a node, and does what is due.
func (p *replay) saw(ctx context.Context, name string, note func(*node)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.all[name]; n != nil {
		note(n)
		p.advance(ctx, n)
	}
}

// advance begins each stage of a node that is due.
func (p *replay) advance(ctx context.Context, n *node) {
	if !p.started {
		return
	}
	for i := range p.protocol.stages {
		s := &p.protocol.stages[i]
		if n.begun[s.name] || len(n.sharing(p.protocol.stages[i+1:], s)) > 0 || !p.due(n, s) {
			continue
		}
		n.begun[s.name] = true
		if s.takes {
			if p.places == 0 {
				p.waiting = append(p.waiting, n)
				continue
			}
			p.places--
		}
		p.dispatch(ctx, n, s)
	}
}

func (p *replay) dispatch(ctx context.Context, n *node, s *stage) {
	switch {
	case s.agent:
		p.agent(func() error { return p.do(ctx, n, s) })
	case len(s.after) == 0:
		p.firsts <- func(ctx context.Context) error { return p.do(ctx, n, s) }
	default:
		p.others <- func(ctx context.Context) error { return p.do(ctx, n, s) }
	}
}

// due is whether a stage's sender knows of all that it has to wait for, and so of all stages that
// its request serves.
func (p *replay) due(n *node, s *stage) bool {
	all := append(n.sharing(p.protocol.stages, s), s)
	return !slices.ContainsFunc(all, func(one *stage) bool { return !p.knows(n, one, all) })
}

// knows leaves out what goes with the stage.
func (p *replay) knows(n *node, s *stage, with []*stage) bool {
	saw := n.operatorSaw
	if s.agent {
		saw = n.agentSaw
	}
	for _, before := range s.after {
		if slices.ContainsFunc(with, func(one *stage) bool { return one.name == before }) {
			continue
		}
		if !n.answered[before] || p.stage(before).agent != s.agent && saw < n.wrote[before] {
			return false
		}
	}
	return s.when == nil || s.when(n)
}

// sharing are those among stages that the same request served: two labels can go in one.
func (n *node) sharing(stages []stage, s *stage) []*stage {
	var shared []*stage
	for i := range stages {
		a, b := n.sent[stages[i].name], n.sent[s.name]
		if stages[i].name != s.name && len(a.Body) > 0 && a.Done.Equal(b.Done) && a.URI == b.URI && bytes.Equal(a.Body, b.Body) {
			shared = append(shared, &stages[i])
		}
	}
	return shared
}

func (p *replay) stage(name string) *stage {
	for i := range p.protocol.stages {
		if p.protocol.stages[i].name == name {
			return &p.protocol.stages[i]
		}
	}
	return nil
}

// do sends a stage's request, if the node had one.
func (p *replay) do(ctx context.Context, n *node, s *stage) error {
	r := n.sent[s.name]
	var answer *metav1.PartialObjectMetadata
	if len(r.Body) > 0 {
		p.mu.Lock()
		body, err := n.body(&r)
		p.mu.Unlock()
		if err == nil {
			answer, err = p.send.again(ctx, r, body)
		}
		if err != nil {
			return fmt.Errorf("node %s: %s: %w", n.name, s.name, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n.note(s, &r, answer)
	for _, done := range append(n.sharing(p.protocol.stages, s), s) {
		n.begun[done.name], n.answered[done.name] = true, true
		p.after(ctx, n, done)
	}
	p.advance(ctx, n)
	if len(n.answered) == len(p.protocol.stages) {
		if p.left--; p.left == 0 {
			close(p.done)
		}
	}
	return nil
}

// note takes what later requests name from an answer; nil: nothing was sent.
func (n *node) note(s *stage, r *audit.Request, answer *metav1.PartialObjectMetadata) {
	switch {
	case answer == nil:
	case r.ObjectRef.Resource == "pods":
		n.carrier = answer.UID
	case r.ObjectRef.Resource == "nodemodulesconfigs":
		n.config = answer.UID
		if version, err := strconv.ParseUint(answer.ResourceVersion, 10, 64); err == nil { // a delete may answer without
			n.wrote[s.name], n.version = version, max(n.version, version)
		}
	}
}

// after does what a stage's answer leads to at once.
func (p *replay) after(ctx context.Context, n *node, s *stage) {
	if s.frees {
		p.free(ctx)
	}
	if s.restarts {
		time.AfterFunc(restartAfter, func() { p.restart(n) })
	}
}

// restart deletes the device plugin's pods of before that are still ready.
func (p *replay) restart(n *node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pod := range n.old {
		if !n.plugins[pod] {
			continue
		}
		r, name := n.sent[order], n.names[pod]
		r.Verb, r.URI = "delete", "/api/v1/namespaces/"+name.Namespace+"/pods/"+name.Name
		body := fmt.Appendf(nil, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":%q}}`, pod)
		p.others <- func(ctx context.Context) error {
			if _, err := p.send.again(ctx, r, body); !isGone(err) {
				return fmt.Errorf("node %s: restart its device plugin: %w", n.name, err)
			}
			return nil
		}
	}
}

// free gives a place to the next node.
func (p *replay) free(ctx context.Context) {
	if len(p.waiting) == 0 {
		p.places++
		return
	}
	n := p.waiting[0]
	p.waiting = p.waiting[1:]
	for i := range p.protocol.stages {
		if s := &p.protocol.stages[i]; s.takes {
			p.dispatch(ctx, n, s)
		}
	}
}

// body is what was sent, about the objects that there are now.
func (n *node) body(r *audit.Request) ([]byte, error) {
	if r.Verb == "delete" {
		options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
		switch r.ObjectRef.Resource {
		case "pods":
			options.Preconditions = &metav1.Preconditions{UID: &n.carrier}
		default:
			options.Preconditions = &metav1.Preconditions{UID: &n.config, ResourceVersion: ptr.To(strconv.FormatUint(n.version, 10))}
		}
		body, err := json.Marshal(options)
		if err != nil {
			return nil, fmt.Errorf("encode a delete: %w", err)
		}
		return body, nil
	}
	body := ownVersion.ReplaceAll(r.Body, fmt.Appendf(nil, `${1}"%d"`, n.version))
	body = configUID.ReplaceAll(body, fmt.Appendf(nil, `${1}"%s"`, n.config))
	if !carrierUID.Match(body) || n.carrier == "" {
		return body, nil
	}
	made, err := carrierIn(n.sent[uncarry].Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(body), made) {
		return nil, errors.New("an order in the audit log does not name its carrier")
	}
	return bytes.ReplaceAll(body, []byte(made), []byte(n.carrier)), nil
}

// work does the operator's jobs until the last node is done.
func (p *replay) work(ctx context.Context) error {
	for {
		do, err := p.next(ctx)
		if do == nil || err != nil {
			return err
		}
		if err := do(ctx); err != nil {
			return err
		}
	}
}

// next is the next of the operator's jobs; nil: all is done.
func (p *replay) next(ctx context.Context) (job, error) {
	select {
	case do := <-p.others:
		return do, nil
	default:
	}
	select {
	case do := <-p.others:
		return do, nil
	case do := <-p.firsts:
		return do, nil
	case <-p.done:
		return nil, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, fmt.Errorf("%d nodes of the floor are not done: %w", p.left, context.Cause(ctx))
	}
}

// running says whether a kubelet has started the pod's containers.
func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// Ready says whether a pod is ready and stays.
func Ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
