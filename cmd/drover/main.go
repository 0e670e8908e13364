// SPDX-License-Identifier: Apache-2.0

// Command drover is the command line tool for Modules, and the kubectl plugin `kubectl drover`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drover-project/drover/internal/cli/exit"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(os.Args[0], streams).ExecuteContext(ctx)
	stop()
	code, tell := exit.Code(err)
	if tell {
		_, _ = fmt.Fprintln(os.Stderr, "drover:", err)
	}
	os.Exit(code)
}
