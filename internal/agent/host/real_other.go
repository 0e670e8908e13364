// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import (
	"errors"
	"time"
)

// Options of the real host.
type Options struct {
	// Root is where the host's proc, sys and lib/modules are mounted.
	Root string
	// Command runs this binary's kcall.
	Command []string
	// Deadline of one kernel call.
	Deadline time.Duration
	// Kmod is kmod's program.
	Kmod string
}

// New says that only Linux has kernel modules.
func New(Options) (Host, error) {
	return nil, errors.New("host: nodes run Linux; use hollow nodes here")
}
