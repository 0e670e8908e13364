// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"time"
)

// cost of a run: time on the clock, and processor time.
type cost struct{ wall, cpu time.Duration }

// spentSince is the time since begin and the processor time of all processes that this one has
// waited for, and that those have: compilers, linkers, tests and what tests start and wait for.
func spentSince(begin time.Time) cost {
	spent := cost{wall: time.Since(begin)}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err == nil { // it cannot fail for these arguments
		spent.cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return spent
}
