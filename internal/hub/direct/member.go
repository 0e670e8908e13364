// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-project/drover/internal/hub"
)

const (
	// pingPeriod is how often a cluster is asked whether it answers.
	pingPeriod = 30 * time.Second
	// startTimeout bounds how long it may take to answer, with a filled cache.
	startTimeout = 30 * time.Second
)

// member is a cluster, as long as its Secret is there and names the same server.
type member struct {
	name       string
	secret     types.UID
	version    string
	kubeconfig []byte
	labels     map[string]string
	end        context.CancelFunc
	// connection is nil if the kubeconfig cannot be used.
	connection  *connection
	unreachable string
	// first: it existed when this process began to look. looked: it has been asked once.
	first, looked bool
	// successor connects by a newer kubeconfig, and takes over once it has answered; nil: none. Until
	// then, this member is what is known of the cluster.
	successor *member
}

// known: what the cluster runs and has has been read.
func (m *member) known() bool { return m.connection != nil && m.connection.synced.Load() }

// stop ends the connection, and that of its successor.
func (m *member) stop() {
	if m.successor != nil {
		m.successor.stop()
		m.successor = nil
	}
	m.end()
}

// renew is the member for a Secret that is new (m: nil) or has changed. With another kubeconfig for
// the same server, such as a renewed token, what is known of the cluster stays until the new
// connection has answered. Without it, a cluster that failed would pass for one that was sent
// nothing, and the times would start anew for which Modules have been ready.
func (t *Transport) renew(ctx context.Context, m *member, secret *corev1.Secret) *member {
	if m == nil {
		return t.begin(ctx, secret)
	}
	if m.secret == secret.UID && bytes.Equal(m.kubeconfig, secret.Data[KubeconfigKey]) {
		m.version, m.labels = secret.ResourceVersion, secret.Labels
		if m.successor != nil {
			m.successor.version, m.successor.labels = m.version, m.labels
		}
		return m
	}
	next := t.begin(ctx, secret)
	if m.secret != secret.UID || !m.known() || next.connection != nil && next.connection.server != m.connection.server {
		if m.secret == secret.UID {
			next.first, next.looked = m.first, m.looked
		}
		m.stop()
		return next
	}
	if m.successor != nil {
		m.successor.stop()
	}
	m.successor, m.version, m.kubeconfig, m.labels = next, next.version, next.kubeconfig, next.labels
	if next.connection == nil {
		t.succeed(m, next.unreachable)
	}
	return m
}

// begin connects to a cluster and watches the connection until ctx ends.
func (t *Transport) begin(ctx context.Context, secret *corev1.Secret) *member {
	ctx, end := context.WithCancel(ctx)
	m := &member{
		name: secret.Name, secret: secret.UID, version: secret.ResourceVersion, kubeconfig: secret.Data[KubeconfigKey],
		labels: secret.Labels, end: end, first: !t.listed,
	}
	c, err := connect(secret.Data[KubeconfigKey], t.namespace, hub.Sender(t.hub, t.Name(), secret.Name))
	if err != nil {
		m.looked = true
		m.unreachable = fmt.Sprintf("Secret %s/%s, key %s: %v", secret.Namespace, secret.Name, KubeconfigKey, err)
		return m
	}
	m.connection, m.unreachable = c, "it has not answered yet"
	go t.look(ctx, m)
	return m
}

// look keeps a cluster's cache running and notes whether the cluster answers.
func (t *Transport) look(ctx context.Context, m *member) {
	go func() {
		if err := m.connection.run(ctx, t.changed); err != nil {
			t.say(ctx, m, err)
		}
	}()
	ticker := time.NewTicker(pingPeriod)
	defer ticker.Stop()
	for {
		if t.say(ctx, m, m.connection.answers(ctx, startTimeout)) {
			t.found(ctx, m.connection)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// found reports all Modules of a cluster that answers again, also those that nobody wants.
func (t *Transport) found(ctx context.Context, c *connection) {
	names, err := c.names(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Look at a cluster's Modules")
	}
	for _, name := range names {
		t.changed(name)
	}
}

// say notes whether a cluster answers, unless ctx has ended. anew: it did not before.
func (t *Transport) say(ctx context.Context, m *member, err error) (anew bool) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	if ctx.Err() != nil {
		t.mu.Unlock()
		return false
	}
	same := m.looked && (m.unreachable == "") == (text == "")
	m.unreachable, m.looked = text, true
	if before := t.members[m.name]; before != nil && before.successor == m {
		t.succeed(before, text)
	}
	changed := t.changed
	t.mu.Unlock()
	if !same {
		changed("")
	}
	return !same && text == ""
}

// succeed has a successor that has answered take over. One that cannot be reached, for the reason
// why, leaves what is known of the cluster: the kubeconfig before it is no longer used.
func (t *Transport) succeed(before *member, why string) {
	next := before.successor
	if why != "" {
		before.end()
		before.unreachable = why
		return
	}
	next.connection.inherit(before.connection)
	next.first, before.successor = before.first, nil
	before.stop()
	t.members[next.name] = next
}
