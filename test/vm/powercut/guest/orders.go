// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/test/vm/powercut/say"
)

const (
	// lateEvery says which orders are delivered only a while after they are given, as a carrier takes
	// its time: a cut in that while leaves an order without its build, and the previous one has to
	// serve.
	lateEvery = 2
	late      = 800 * time.Millisecond
	// orderLimit is how long one order may take.
	orderLimit = 4 * time.Minute
)

// orders gives one order after the other to a running agent, each for another build, until the
// power goes.
func (n *node) orders(ctx context.Context) error {
	server := newAPIServer()
	config, err := server.serve(ctx)
	if err != nil {
		return err
	}
	n.parts.Config = config
	a, err := agent.New(n.parts)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for order := n.Issued + 1; ; order++ {
		if err := n.give(server, order); err != nil {
			return err
		}
		if err := await(server, order, ended); err != nil {
			return err
		}
		say.Line(os.Stdout, say.Worked, strconv.Itoa(order))
		rel, err := store.OutputDir(uidOf(order))
		if err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(podsDir, rel)); err != nil {
			return err
		}
	}
}

// give tells the host of an order before it gives it.
func (n *node) give(server *apiServer, order int) error {
	say.Line(os.Stdout, say.Issued, strconv.Itoa(order))
	isLate := order%lateEvery == 0
	if !isLate {
		if err := n.deliver(order); err != nil {
			return err
		}
	}
	server.put(func(o *v1beta1.NodeModulesConfig) { o.Spec.Modules = []v1beta1.NodeModuleSpec{n.order(order)} })
	if !isLate {
		return nil
	}
	<-time.After(late) // waits for nothing: this is how long the carrier takes
	return n.deliver(order)
}

// await waits until an order is reported to be live.
func await(server *apiServer, order int, ended <-chan error) error {
	limit := time.After(orderLimit)
	image := fmt.Sprintf("registry.test/sample:%d", order)
	for {
		object, changed := server.get()
		if slices.ContainsFunc(object.Status.Modules, func(m v1beta1.NodeModuleStatus) bool { return m.Config.ContainerImage == image }) {
			return nil
		}
		select {
		case <-changed:
		case err := <-ended:
			return fmt.Errorf("the agent ended: %w", err)
		case <-limit:
			return fmt.Errorf("order %d is not live after %s: %+v", order, orderLimit, object.Status)
		}
	}
}
