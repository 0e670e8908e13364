// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// pollInterval is how often readiness is asked for.
const pollInterval = 50 * time.Millisecond

// client asks the API server plain questions as the administrator.
type client struct {
	http   *http.Client
	server string
}

func newClient(kubeconfig string) (*client, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return &client{http: transport, server: config.Host}, nil
}

// serves returns a question: does path answer 200? The error says what it
// answers instead.
func (c *client) serves(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, nil)
		if err != nil {
			return fmt.Errorf("ask %s: %w", path, err)
		}
		response, err := c.http.Do(request)
		if err != nil {
			return fmt.Errorf("ask %s: %w", path, err)
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 2<<10))
		if err != nil {
			return fmt.Errorf("ask %s: %w", path, err)
		}
		return fmt.Errorf("ask %s: %s: %s", path, response.Status, body)
	}
}

// until polls until the question is answered without an error. It fails as soon
// as a component dies or ctx ends.
func (c *Cluster) until(ctx context.Context, what string, question func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		select {
		case p := <-c.ended:
			return fmt.Errorf("wait until %s: %w", what, p.died())
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last answer: %w", what, context.Cause(ctx), last)
		case <-ticker.C:
		}
		if err := question(ctx); err != nil {
			// Cut off by the deadline, the answer says less than the one before.
			if ctx.Err() == nil {
				last = err
			}
			continue
		}
		return nil
	}
}
