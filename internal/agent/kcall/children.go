// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

// ErrLeftBehind says that a child did not end before its deadline; it is still running.
var ErrLeftBehind = errors.New("the child process did not end in time and was left behind")

// Children waits for processes that make kernel calls, and leaves behind those that hang. It kills
// none: a task in the kernel cannot be killed, and any other would be cut off in the middle.
type Children struct {
	// Deadline of one child.
	Deadline time.Duration
	// Returned is called when a child that was left behind ends after all. May be nil.
	Returned func()

	mu   sync.Mutex
	left map[string]bool // keys of children left behind
}

// Left tells whether a child with this key was left behind and is still running.
func (c *Children) Left(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left[key]
}

// Running tells whether any child that was left behind is still running.
func (c *Children) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.left) > 0
}

// Wait returns how a child ended that was started, or ErrLeftBehind after the deadline.
func (c *Children) Wait(child *exec.Cmd, key string) error {
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	timer := time.NewTimer(c.Deadline)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = map[string]bool{}
	}
	c.left[key] = true
	go func() {
		<-ended //nolint:errcheck // nobody waits for its answer any more
		c.mu.Lock()
		delete(c.left, key)
		c.mu.Unlock()
		if c.Returned != nil {
			c.Returned()
		}
	}()
	return ErrLeftBehind
}
