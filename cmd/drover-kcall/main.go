// SPDX-License-Identifier: Apache-2.0

// Command drover-kcall makes one kernel call for the agent, beside whose binary it lies: request on standard input, answer on standard output.
// The agent could start itself for that (`drover-agent kcall`), but starting a program with an API client in it takes longer than most loads.
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
