// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/watchdog"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// usualProgress is --progress-deadline where kernel calls may not take half of it.
	usualProgress = 10 * time.Minute
	// terminationLog is where the kubelet looks for a container's last words: the default of its
	// terminationMessagePath.
	terminationLog = "/dev/termination-log"
	// lastWords is how long a process that hangs may take to say so: its log may be what hangs.
	lastWords = 5 * time.Second

	maxDump   = 1 << 20  // of the stacks of all goroutines, bytes
	maxStacks = 16 << 10 // of those that are logged, bytes
)

// watched does work, which tells o.dog its steps. Should it hang, the process ends.
func (o *nodeOptions) watched(ctx context.Context, work func() error) error {
	if o.progressDeadline == 0 {
		o.progressDeadline = max(usualProgress, 2*o.callDeadline)
	}
	if o.progressDeadline <= o.callDeadline {
		return fmt.Errorf("--progress-deadline is %s and must be more than --kernel-call-deadline (%s), which one step may lawfully take",
			o.progressDeadline, o.callDeadline)
	}
	o.dog = watchdog.New(o.progressDeadline)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		if hung := o.dog.Watch(ctx, clock.RealClock{}); hung != nil {
			end(ctx, hung)
		}
	}()
	return work()
}

// end says why and ends the process. The kubelet starts another, which goes on from the journal.
func end(ctx context.Context, hung error) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		err := leaveWord(terminationLog, hung)
		klog.FromContext(ctx).Error(hung, "The agent ends, to be started again; what is loaded stays", "stacks", stacks())
		if err != nil {
			klog.FromContext(ctx).Error(err, "The pod's status does not say why the agent ended")
		}
	}()
	select {
	case <-said:
	case <-time.After(lastWords):
	}
	os.Exit(1)
}

// leaveWord writes one line into a file that exists: outside a container, there is none.
func leaveWord(name string, hung error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("termination message: %w", err)
	}
	defer func() { _ = file.Close() }() // the write counts
	if _, err := fmt.Fprintf(file, "%s. It ended itself, to be started again; what is loaded stays. Its log shows where it hung.\n",
		words.Line(hung.Error())); err != nil {
		return fmt.Errorf("termination message: %w", err)
	}
	return nil
}

// stacks are those of goroutines that run the agent's own code.
func stacks() string {
	dump := make([]byte, maxDump)
	return ownStacks(string(dump[:runtime.Stack(dump, true)]))
}

// ownStacks chooses from a dump: what runs libraries only, such as the watch, does not hang the
// loop. The first is the one that made the dump.
func ownStacks(dump string) string {
	var own []string
	for i, stack := range strings.Split(dump, "\n\n") {
		if i > 0 && strings.Contains(stack, "/internal/agent") {
			own = append(own, stack)
		}
	}
	return words.Cut(strings.Join(own, "\n\n"), maxStacks)
}
