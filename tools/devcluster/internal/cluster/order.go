// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/drover-project/drover/tools/devcluster/internal/component"
)

// restartPatience bounds the start of one component.
const restartPatience = time.Minute

// The verbs of an Order.
const (
	// StopComponent ends a component; its absence is no failure of the cluster.
	StopComponent = "stop"
	// StartComponent starts a stopped one, as it was started first, and returns
	// when it serves (kube-apiserver) or runs (the others).
	StartComponent = "start"
)

// Order changes a running cluster, for tests of outages.
type Order struct {
	Verb, Component string
	// Done receives the result, once. It needs room for one.
	Done chan error
}

func (c *Cluster) do(ctx context.Context, o Order) error {
	i := slices.IndexFunc(c.processes, func(p *process) bool { return p.name == o.Component })
	if i < 0 {
		return fmt.Errorf("%s %s: no such component here", o.Verb, o.Component)
	}
	p := c.processes[i]
	switch o.Verb {
	case StopComponent:
		if err := p.terminate(); err != nil {
			return err
		}
		return p.await()
	case StartComponent:
		return c.startAgain(ctx, i)
	default:
		return fmt.Errorf("%s %s: no such order", o.Verb, o.Component)
	}
}

func (c *Cluster) startAgain(ctx context.Context, i int) error {
	stopped := c.processes[i]
	select {
	case <-stopped.done:
	default:
		return fmt.Errorf("start %s: it runs", stopped.name)
	}
	fresh, err := launch(c.rope, c.layout.dir, stopped.spec)
	if err != nil {
		return err
	}
	c.processes = slices.Delete(c.processes, i, i+1)
	c.follow(fresh)
	if fresh.name != component.APIServer {
		return nil
	}
	client, err := newClient(c.layout.admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restartPatience)
	defer cancel()
	return c.until(ctx, "the API server is ready again", client.serves("/readyz"))
}
