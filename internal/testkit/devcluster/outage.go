// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"strings"
)

// The components' names, for StopComponent and StartComponent.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// StopComponent makes an outage: it ends one component and returns when its
// process is gone. The data stays. Outages are made one at a time.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
	return c.order(ctx, "stop "+name)
}

// StartComponent ends the outage, on the same address. It returns when the API
// server serves again; of other components, when the process runs.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	return c.order(ctx, "start "+name)
}

// order sends a line to devcluster and waits for its answer.
func (c *Cluster) order(ctx context.Context, line string) error {
	if _, err := fmt.Fprintln(c.stdin, line); err != nil {
		return fmt.Errorf("tell devcluster to %s: %w", line, err)
	}
	select {
	case answer := <-c.answers:
		if answer != "DONE "+line {
			return fmt.Errorf("devcluster could not %s: %s", line, strings.TrimPrefix(answer, "FAILED "))
		}
		return nil
	case <-c.done:
		return fmt.Errorf("tell devcluster to %s: %w", line, c.ended(nil))
	case <-ctx.Done():
		return fmt.Errorf("wait until devcluster can %s: %w", line, context.Cause(ctx))
	}
}
