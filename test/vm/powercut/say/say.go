// SPDX-License-Identifier: Apache-2.0

// Package say is what a machine whose power is cut and its host tell each other: the host by the
// kernel's command line, the machine by lines on its second serial port.
package say

import (
	"fmt"
	"io"
	"strings"
)

// Words that begin a line.
const (
	// Mounted: the disk is mounted.
	Mounted = "mounted"
	// Judged is followed by a Judgement in JSON.
	Judged = "judged"
	// Issued and Worked are followed by the number of an order: it is about to be given, it is live
	// and reported.
	Issued = "issued"
	Worked = "worked"
	// Failed is followed by why the machine cannot go on.
	Failed = "failed"
)

// Options of one boot.
type Options struct {
	// FileSystem of the disk.
	FileSystem string
	// NoSync takes fsync away from the agent's state files.
	NoSync bool
	// Worked and Issued are the last orders that were told to be so before the power was cut; 0: none.
	Worked, Issued int
}

// Judgement is what the last cut has left.
type Judgement struct {
	// Damaged names files that are not whole, or were moved aside.
	Damaged []string `json:"damaged,omitempty"`
	// Live is the order whose build the agent loaded without an API server; 0: none, -1: a build of no
	// order.
	Live int `json:"live"`
	// Held says why nothing had to be loaded; empty: something had to.
	Held string `json:"held,omitempty"`
}

// Line writes a line.
func Line(w io.Writer, word string, more ...string) {
	// Who cannot write here has nobody to tell.
	_, _ = fmt.Fprintf(w, "%s\n", strings.ReplaceAll(strings.Join(append([]string{word}, more...), " "), "\n", " "))
}
