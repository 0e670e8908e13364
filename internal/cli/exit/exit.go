// SPDX-License-Identifier: Apache-2.0

// Package exit are the exit codes of the command line tool; docs/reference/cli.md documents them.
package exit

import "errors"

const (
	// NotReady says: the command worked, and what it found is not as asked: not ready, refused, failed.
	NotReady = 1
	// Failed says: the command could not do its work: wrong usage, no cluster, no right, an error of the API server.
	Failed = 2
)

// ErrNotReady ends a command that has said already what is not as asked.
var ErrNotReady = errors.New("not ready")

// Code is the exit code for what a command returned, and whether the error has to be told still.
func Code(err error) (code int, tell bool) {
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, ErrNotReady):
		return NotReady, false
	}
	return Failed, true
}
