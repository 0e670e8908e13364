// SPDX-License-Identifier: Apache-2.0

// Package exit has the exit codes of the command line tool; docs/reference/cli.md documents them.
package exit

import "errors"

const (
	// NotReady says that the command worked, and what it found is not ready, was refused or failed.
	NotReady = 1
	// Failed says that the command failed: wrong usage, no cluster, no right, an API server's error.
	Failed = 2
)

// ErrNotReady ends a command that has already said what is not ready.
var ErrNotReady = errors.New("not ready")

// Code is the exit code for what a command returned, and whether the error must still be printed.
func Code(err error) (code int, tell bool) {
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, ErrNotReady):
		return NotReady, false
	}
	return Failed, true
}
