// SPDX-License-Identifier: Apache-2.0

// Command drover is the command line tool for Modules, and the kubectl plugin `kubectl drover`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/bake"
	"github.com/drover-project/drover/internal/cli/doctor"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/cli/gather"
	"github.com/drover-project/drover/internal/cli/headersimage"
	"github.com/drover-project/drover/internal/cli/images"
	"github.com/drover-project/drover/internal/cli/lint"
	"github.com/drover-project/drover/internal/cli/migrate"
	"github.com/drover-project/drover/internal/cli/newoperator"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/cli/plan"
	"github.com/drover-project/drover/internal/cli/preflight"
	"github.com/drover-project/drover/internal/cli/retry"
	"github.com/drover-project/drover/internal/cli/status"
	versioncmd "github.com/drover-project/drover/internal/cli/version"
	"github.com/drover-project/drover/internal/cli/wait"
	"github.com/drover-project/drover/internal/shared/version"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: paint.Safe(os.Stdout), ErrOut: paint.Safe(os.Stderr)}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(os.Args[0], streams).ExecuteContext(ctx)
	stop()
	code, tell := exit.Code(err)
	if tell {
		_, _ = fmt.Fprintln(streams.ErrOut, "drover:", err)
	}
	os.Exit(code)
}

// command is the tree of all commands. called is the name under which the program runs.
func command(called string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use: "drover", Short: "Look after kernel modules on a cluster's nodes",
		Long: "Look after kernel modules on a cluster's nodes.\n\n" +
			"The same program works as a kubectl plugin: put it into the PATH as kubectl-drover, and call it as `kubectl drover`.\n\n" +
			"Exit codes: 0 success, 1 something is not ready, was refused or failed, 2 the command itself failed.",
		SilenceErrors: true, SilenceUsage: true,
	}
	if strings.HasPrefix(filepath.Base(called), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl drover"}
	}
	root.SetOut(paint.Raw(streams.Out)) // help and completions are ours; the latter have tabs
	root.SetErr(streams.ErrOut)
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.UserAgent = version.UserAgent("drover")
		return c
	})
	flags.AddFlags(root.PersistentFlags())
	hideRareFlags(root)
	time := clock.RealClock{}
	root.AddCommand(
		status.NewCommand(flags, streams, time), explain.NewCommand(flags, streams, time), wait.NewCommand(flags, streams, time),
		plan.NewCommand(flags, streams, time), lint.NewCommand(flags, streams, time), headersimage.NewCommand(flags, streams, time),
		preflight.NewCommand(flags, streams, time), retry.NewCommand(flags, streams, time), newoperator.NewCommand(flags, streams, time),
		gather.NewCommand(flags, streams, time), migrate.NewCommand(flags, streams, time), doctor.NewCommand(flags, streams, time),
		images.NewCommand(flags, streams, time), bake.NewCommand(flags, streams, time), versioncmd.NewCommand(flags, streams, time),
	)
	return root
}

// hideRareFlags keeps kubectl's rarer flags, which work all the same, out of each command's help.
func hideRareFlags(root *cobra.Command) {
	usual := []string{"namespace", "context", "kubeconfig", "as"}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(usual, f.Name) })
}
