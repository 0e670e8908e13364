// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/shared/version"
)

// boundToken authenticates one node's agent with a ServiceAccount token that is bound to the Node,
// as the kubelet would bind one to the agent's pod. The transport below it is shared by all nodes
// of the process.
type boundToken struct {
	node *node

	mu    sync.Mutex
	token string
	renew time.Time
}

// config is base with this token in place of its own identity. TLS settings stay equal, so that
// client-go gives all nodes one transport: a few HTTP/2 connections instead of one per node.
func (b *boundToken) config(base *rest.Config) *rest.Config {
	c := rest.AnonymousClientConfig(base)
	c.UserAgent = version.UserAgent("drover-agent")
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return &tokenTransport{token: b, next: next} }
	return c
}

// reset forgets the token: the node's object may be another one now.
func (b *boundToken) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token = ""
}

func (b *boundToken) get(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token != "" && b.node.clock.Now().Before(b.renew) {
		return b.token, nil
	}
	b.node.mu.Lock()
	uid := b.node.uid
	b.node.mu.Unlock()
	answer, err := b.node.api.agentToken(ctx, b.node.name, uid)
	if err != nil {
		return "", err
	}
	now := b.node.clock.Now()
	b.token, b.renew = answer.Token, now.Add(answer.ExpirationTimestamp.Sub(now)*4/5)
	return b.token, nil
}

type tokenTransport struct {
	token *boundToken
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token.get(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes the body, whatever happens
		}
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := t.next.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		t.token.reset()
	}
	return answer, err //nolint:wrapcheck // client-go looks at the transport's own errors
}

// WrappedRoundTripper lets client-go reach the transport below.
func (t *tokenTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
