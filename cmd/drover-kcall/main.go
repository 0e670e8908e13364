// SPDX-License-Identifier: Apache-2.0

// Command drover-kcall makes one kernel call for the agent, see package kcall. The agent could
// start itself, but a program with an API client takes longer to start than most loads.
package main

import (
	"fmt"
	"os"

	"github.com/drover-project/drover/internal/agent/kcall"
)

func main() {
	if err := kcall.Run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "drover-kcall:", err)
		os.Exit(1)
	}
}
