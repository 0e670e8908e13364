// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/testkit/audit"
)

const (
	// floorAgent is the user agent of the floor's requests.
	floorAgent = "floor/1"
	// smallAnswer asks for an answer without the object: only its UID is needed.
	smallAnswer = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// sender sends recorded requests once more, under the identity that sent them.
type sender struct {
	admin *rest.Config

	mu      sync.Mutex
	clients map[string]*http.Client // by identity
}

func newSender(admin *rest.Config) *sender {
	return &sender{admin: admin, clients: map[string]*http.Client{}}
}

// client speaks as the user who made the request. All share one transport.
func (s *sender) client(r audit.Request) (*http.Client, error) {
	key := r.User.Username + " " + strings.Join(r.User.Extra["authentication.kubernetes.io/node-name"], ",")
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[key]; c != nil {
		return c, nil
	}
	config := rest.CopyConfig(s.admin)
	config.UserAgent = floorAgent
	config.Impersonate = rest.ImpersonationConfig{UserName: r.User.Username, Groups: r.User.Groups, Extra: r.User.Extra}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect as %s: %w", r.User.Username, err)
	}
	s.clients[key] = c
	return c, nil
}

// again sends a request with a body of the same kind, and returns the UID of the object in the
// answer.
func (s *sender) again(ctx context.Context, r audit.Request, body []byte) (types.UID, error) {
	c, err := s.client(r)
	if err != nil {
		return "", err
	}
	method := map[string]string{"create": http.MethodPost, "patch": http.MethodPatch, "delete": http.MethodDelete}[r.Verb]
	request, err := http.NewRequestWithContext(ctx, method, s.admin.Host+r.URI, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	request.Header.Set("Content-Type", contentType(r.Verb, body))
	request.Header.Set("Accept", smallAnswer)
	answer, err := c.Do(request)
	if err != nil {
		return "", fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s", answer.Status, content)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(content, &object); err != nil {
		return "", fmt.Errorf("%s %s again: %w", r.Verb, r.URI, err)
	}
	return object.UID, nil
}

// contentType of a body. The audit log does not tell the forms of a patch apart, but what is
// applied names its kind.
func contentType(verb string, body []byte) string {
	switch {
	case verb != "patch":
		return "application/json"
	case bytes.Contains(body, []byte(`"apiVersion"`)):
		return "application/apply-patch+yaml"
	}
	return "application/merge-patch+json"
}

// progress is how far the floor is with one node.
type progress struct {
	*recorded
	uid types.UID // of the carrier
	// What the watches have shown.
	ordered, running, reported, plugged bool
	// What was sent for it.
	saidReport, saidReady, saidPlugin bool
}

// replay sends the recorded requests as the watches show that it is time. As in Drover, each node's
// agent is a client of its own, and the operator has so many requests in flight at a time.
type replay struct {
	send *sender
	// The operator's jobs. What is due for a node that has begun goes first: nodes that all begin
	// before any ends would make a floor that is higher than it need be.
	orders, ends chan job
	done         chan struct{}

	mu    sync.Mutex
	nodes map[string]*progress
	left  int
	agent func(job func() error) // runs an agent's job
}

type job func(context.Context) error

func newReplay(r *recording, send *sender) *replay {
	p := &replay{
		send: send, orders: make(chan job, len(r.nodes)), ends: make(chan job, 2*len(r.nodes)), done: make(chan struct{}),
		nodes: map[string]*progress{}, left: len(r.nodes),
	}
	for node, sent := range r.nodes {
		p.nodes[node] = &progress{recorded: sent}
	}
	return p
}

// begin queues the orders of all nodes.
func (p *replay) begin() {
	for _, n := range p.nodes {
		p.orders <- func(ctx context.Context) error { return p.order(ctx, n) }
	}
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
	case do := <-p.ends:
		return do, nil
	default:
	}
	select {
	case do := <-p.ends:
		return do, nil
	case do := <-p.orders:
		return do, nil
	case <-p.done:
		return nil, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, fmt.Errorf("%d nodes of the floor are not done: %w", p.left, context.Cause(ctx))
	}
}

// order creates the carrier and gives the order, which names it.
func (p *replay) order(ctx context.Context, n *progress) error {
	uid, err := p.send.again(ctx, n.carrier, n.carrier.Body)
	if err != nil {
		return err
	}
	body, err := withCarrier(n.order.Body, uid)
	if err != nil {
		return err
	}
	p.mu.Lock()
	n.uid = uid
	p.mu.Unlock()
	_, err = p.send.again(ctx, n.order, body)
	return err
}

// ready says that a node is ready, and removes its carrier.
func (p *replay) ready(ctx context.Context, n *progress) error {
	if _, err := p.send.again(ctx, n.ready, n.ready.Body); err != nil {
		return err
	}
	p.mu.Lock()
	uid := n.uid
	p.mu.Unlock()
	remove := n.carrier
	pods, _, _ := strings.Cut(remove.URI, "?")
	remove.Verb, remove.URI = "delete", pods+"/"+remove.ObjectRef.Name
	options := metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: &uid},
	}
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode a delete: %w", err)
	}
	_, err = p.send.again(ctx, remove, body)
	return err
}

// plugin says that a node's device plugin is ready.
func (p *replay) plugin(ctx context.Context, n *progress) error {
	if _, err := p.send.again(ctx, n.plugin, n.plugin.Body); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left--; p.left == 0 {
		close(p.done)
	}
	return nil
}

// saw notes what a watch has shown of a node, and does what is due.
func (p *replay) saw(ctx context.Context, node string, note func(*progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil {
		return
	}
	note(n)
	if n.ordered && n.running && !n.saidReport {
		n.saidReport = true
		p.agent(func() error {
			_, err := p.send.again(ctx, n.report, n.report.Body)
			return err
		})
	}
	if n.reported && !n.saidReady {
		n.saidReady = true
		p.ends <- func(ctx context.Context) error { return p.ready(ctx, n) }
	}
	if n.plugged && !n.saidPlugin {
		n.saidPlugin = true
		p.ends <- func(ctx context.Context) error { return p.plugin(ctx, n) }
	}
}

// withCarrier is an order that names another carrier.
func withCarrier(order []byte, uid types.UID) ([]byte, error) {
	var found struct {
		Spec struct {
			Modules []struct {
				Delivery struct {
					CarrierUID string `json:"carrierUID"`
				} `json:"delivery"`
			} `json:"modules"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(order, &found); err != nil {
		return nil, fmt.Errorf("read an order from the audit log: %w", err)
	}
	if len(found.Spec.Modules) != 1 || found.Spec.Modules[0].Delivery.CarrierUID == "" {
		return nil, errors.New("an order in the audit log does not name its carrier")
	}
	return bytes.ReplaceAll(order, []byte(found.Spec.Modules[0].Delivery.CarrierUID), []byte(uid)), nil
}

// running says whether a kubelet has started the pod's containers.
func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
