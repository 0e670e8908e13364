// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/drover-project/drover/tools/devcluster/internal/component"
	"github.com/drover-project/drover/tools/devcluster/internal/lifeline"
)

// attempts is how often a start is tried when a chosen port was lost.
const attempts = 3

// Cluster is a running control plane.
type Cluster struct {
	// Info tells where everything is.
	Info Info

	layout    *layout
	rope      *lifeline.Rope
	processes []*process
	// ended receives each process that has ended.
	ended chan *process
}

// Start starts a control plane and returns when it serves: the API server is
// ready and the controllers have made the default namespace's ServiceAccount.
// An error that holds a *DiedError shows the log of the component to blame.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.ReadyTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.ReadyTimeout)
		defer cancel()
	}
	var err error
	for range attempts {
		var c *Cluster
		if c, err = startOnce(ctx, o); err == nil {
			return c, nil
		}
		var died *DiedError
		if !errors.As(err, &died) || !died.portLost() {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no free ports in %d attempts: %w", attempts, err)
}

func startOnce(ctx context.Context, o Options) (_ *Cluster, err error) {
	begin := time.Now()
	l, err := prepare(o)
	if err != nil {
		return nil, err
	}
	rope, err := lifeline.New()
	if err != nil {
		return nil, err
	}
	c := &Cluster{layout: l, rope: rope, ended: make(chan *process, len(component.Names()))}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	for _, s := range []spec{l.etcd(o), l.apiServer(o)} {
		if err := c.launch(o, s); err != nil {
			return nil, err
		}
	}
	client, err := newClient(l.admin)
	if err != nil {
		return nil, err
	}
	if err := c.until(ctx, "the API server is ready", client.serves("/readyz")); err != nil {
		return nil, err
	}
	specs := []spec{l.controllerManager(o), l.scheduler(o)}
	if o.WithKwok {
		specs = append(specs, l.kwok(o))
	}
	for _, s := range specs {
		if err := c.launch(o, s); err != nil {
			return nil, err
		}
	}
	account := "/api/v1/namespaces/default/serviceaccounts/default"
	if err := c.until(ctx, "the controllers work", client.serves(account)); err != nil {
		return nil, err
	}
	c.describe(o, time.Since(begin))
	return c, nil
}

func (c *Cluster) launch(o Options, s spec) error {
	s.args = append(s.args, o.ExtraArgs[s.name]...)
	p, err := launch(c.rope, c.layout.dir, s)
	if err != nil {
		return err
	}
	c.follow(p)
	return nil
}

// follow adds a process, and tells when it ends unasked.
func (c *Cluster) follow(p *process) {
	c.processes = append(c.processes, p)
	go func() {
		<-p.done
		if !p.wanted.Load() {
			c.ended <- p
		}
	}()
}

func (c *Cluster) describe(o Options, took time.Duration) {
	l := c.layout
	c.Info = Info{
		Kubeconfig: l.admin,
		Server:     l.server,
		Etcd:       l.etcdURL,
		Dir:        l.dir,
		AuditLog:   l.auditLog,
		CA:         l.ca.certificateFile(),
		CAKey:      l.ca.keyFile(),
		PID:        os.Getpid(),
		PIDs:       map[string]int{},
		Logs:       map[string]string{},
		NodeTokens: l.nodeTokens,
		Seconds:    took.Round(10 * time.Millisecond).Seconds(),
	}
	if o.Kubeconfig != "" {
		c.Info.Kubeconfig = o.Kubeconfig
	}
	for _, p := range c.processes {
		c.Info.PIDs[p.name], c.Info.Logs[p.name] = p.pid(), p.log
	}
}

// Wait blocks until ctx ends, which returns nil, or a component ends unasked,
// which returns a *DiedError. Meanwhile it does what comes from orders.
func (c *Cluster) Wait(ctx context.Context, orders <-chan Order) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-c.ended:
			return p.died()
		case order := <-orders:
			order.Done <- c.do(ctx, order)
		}
	}
}

// Stop ends the components, the clients of the API server first, then it, then
// etcd, and returns when all processes are gone. A server whose store is gone
// would linger.
func (c *Cluster) Stop() error {
	var servers, clients []*process
	for _, p := range c.processes {
		if p.name == component.Etcd || p.name == component.APIServer {
			servers = append([]*process{p}, servers...)
			continue
		}
		clients = append(clients, p)
	}
	var errs []error
	for _, p := range clients {
		errs = append(errs, p.terminate())
	}
	for _, p := range clients {
		errs = append(errs, p.await())
	}
	for _, p := range servers {
		errs = append(errs, p.terminate(), p.await())
	}
	return errors.Join(append(errs, c.rope.Close())...)
}
