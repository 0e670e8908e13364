// SPDX-License-Identifier: Apache-2.0

// Package measure has what benches on hollow fleets share: quiet windows that tell each program's
// CPU time and everybody's requests, and floors. A floor is the least that a protocol takes on this
// machine: a bare client sends the requests that Drover's components sent, with their bodies and
// under their identities, and keeps the watches that they keep.
package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// Quiet is how long nothing may be written before a phase counts as over, and how long is watched
// for writes that must not happen.
const Quiet = 5 * time.Second

// MaxOperatorMiB is how much memory the operator's process may take, in MiB: 120 for small fleets,
// 200 for 5,000 nodes with one Module, 400 with 20, and in proportion between.
func MaxOperatorMiB(nodes, modules int) float64 {
	size, more := float64(nodes)/5000, float64(nodes*(modules-1))/(5000*19)
	return max(120, 100+100*size+200*more)
}

// Rig is a hollow fleet that is measured.
type Rig struct {
	*fleet.Fleet
	// Log is read from where the last phase ended.
	Log *audit.Log
	// Nodes is how many there are.
	Nodes int
	// Timeout is how long they may take to be ready.
	Timeout time.Duration
	// Watcher is the bench's own client, which watches.
	Watcher client.WithWatch
	// Say receives progress, one line each.
	Say func(format string, args ...any)
}

// New connects a bench to a fleet, and begins to read its audit log.
func New(f *fleet.Fleet, nodes int, timeout time.Duration, say func(string, ...any)) (*Rig, error) {
	log, err := audit.Open(f.Cluster.AuditLog)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(f.AdminConfig)
	config.UserAgent = "bench"
	watcher, err := client.NewWithWatch(config, client.Options{Scheme: f.Admin.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connect the bench: %w", err)
	}
	return &Rig{Fleet: f, Log: log, Nodes: nodes, Timeout: timeout, Watcher: watcher, Say: say}, nil
}

// Settle returns when nobody has written anything for a while, but for signs of life.
func (r *Rig) Settle(ctx context.Context) error {
	log, err := audit.Open(r.Cluster.AuditLog)
	if err != nil {
		return err
	}
	last := time.Now()
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, r.Timeout, false, func(context.Context) (bool, error) {
		requests, err := log.Next()
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(requests, func(r audit.Request) bool { return r.IsWrite() && r.Resource() != "nodes/status" }) {
			last = time.Now()
		}
		return time.Since(last) > Quiet, nil
	})
	if err != nil {
		return fmt.Errorf("wait until nobody writes: %w", err)
	}
	return nil
}

// UntilQuiet collects our writes until none has come for a while.
func (r *Rig) UntilQuiet(ctx context.Context) ([]audit.Request, error) {
	var writes []audit.Request
	last := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, false, func(context.Context) (bool, error) {
		requests, err := r.Log.Next()
		if err != nil {
			return false, err
		}
		if more := audit.OurWrites(requests); len(more) > 0 {
			writes, last = append(writes, more...), time.Now()
		}
		return time.Since(last) > Quiet, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait until nothing is written any more: %w", err)
	}
	return writes, nil
}

// Begin opens a window when nobody has written for a while.
func (r *Rig) Begin(ctx context.Context) (*Window, error) {
	if err := r.Settle(ctx); err != nil {
		return nil, err
	}
	if _, err := r.Log.Next(); err != nil {
		return nil, err
	}
	return r.window()
}

// StopAgents ends all agents, and the operator.
func (r *Rig) StopAgents(ctx context.Context) error {
	truth, err := r.Truth(ctx)
	if err != nil {
		return err
	}
	for _, n := range truth {
		if err := r.Debug(ctx, "/agent-off?node="+n.Name); err != nil {
			return err
		}
	}
	return r.StopOperator()
}

// Seconds since a moment, to the hundredth.
func Seconds(since time.Time) float64 {
	return time.Since(since).Round(10 * time.Millisecond).Seconds()
}
