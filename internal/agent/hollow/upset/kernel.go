// SPDX-License-Identifier: Apache-2.0

package upset

import (
	"context"
	"sync"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

// Death is what a call panics with when the agent that made it is killed.
type Death struct{}

// Kernel is a fake kernel under which the agent can be killed at a call, as by SIGKILL: nothing
// that the agent would do in the end is done.
type Kernel struct {
	*fake.Host

	mu     sync.Mutex
	armed  bool
	before bool
	kills  int
}

// Kill ends whoever makes the next call: before the kernel sees it, or after it has done it.
func (k *Kernel) Kill(before bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed, k.before = true, before
}

// Spare takes Kill back, if nobody was killed yet.
func (k *Kernel) Spare() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed = false
}

// Kills counts who was killed.
func (k *Kernel) Kills() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kills
}

// Load implements host.Host.
func (k *Kernel) Load(ctx context.Context, r host.LoadRequest) error {
	return k.call(func() error { return k.Host.Load(ctx, r) })
}

// Unload implements host.Host.
func (k *Kernel) Unload(ctx context.Context, r host.UnloadRequest) error {
	return k.call(func() error { return k.Host.Unload(ctx, r) })
}

// Modprobe implements execute.Modprobe.
func (k *Kernel) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	return k.call(func() error { return k.Host.Modprobe(ctx, r) })
}

func (k *Kernel) call(do func() error) error {
	if k.dies(true) {
		panic(Death{})
	}
	err := do()
	if k.dies(false) {
		panic(Death{})
	}
	return err
}

func (k *Kernel) dies(before bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.armed || k.before != before {
		return false
	}
	k.armed = false
	k.kills++
	return true
}
