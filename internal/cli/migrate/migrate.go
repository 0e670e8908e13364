// SPDX-License-Identifier: Apache-2.0

// Package migrate is `drover migrate kmm`: it says what of KMM is in Drover's way, takes it out of
// the way without touching a kernel, and puts it back.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/words"
)

// droverNamespace is where Drover runs, and where the copy of what was taken away is kept.
const droverNamespace = "drover-system"

// manager is the field manager of all that the command writes.
const manager = "drover-migrate"

type options struct {
	genericiooptions.IOStreams
	clock              clock.PassiveClock
	api                *api
	format             output.Format
	check, apply, back bool
	timeout            time.Duration
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Come over from another operator, and go back",
		Long: "Come over from another operator, and go back. No kernel module is loaded or unloaded on the way.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKMM(flags, streams, clock))
	return cmd
}

func newKMM(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, clock: clock}
	cmd := &cobra.Command{
		Use:   "kmm [--check | --apply | --back]",
		Short: "Take over from Kernel Module Management (KMM), or give back to it",
		Long: "Looks at what Kernel Module Management (KMM) has in the cluster, and says for each thing whether it is in Drover's way.\n" +
			"With --apply it takes it out of the way: stops KMM's operator, removes its webhooks, and prepares its definitions for\n" +
			"Drover's. With --back, after Drover was removed, it puts all of it back. Kernel modules and pods of Modules stay as they\n" +
			"are. Each of them can be repeated.\n\n" +
			"Exit codes: 0 nothing is in the way, or it is done; 1 something is in the way, or was refused; 2 the command failed.",
		Example: "  drover migrate kmm            # what is in the way? Changes nothing\n" +
			"  drover migrate kmm --apply    # before Drover is installed\n" +
			"  drover migrate kmm --back     # after Drover was removed",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, _, err := cluster.Config(flags)
			if err != nil {
				return err
			}
			if o.api, err = connect(config); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.format.AddFlag(cmd, false)
	cmd.Flags().BoolVar(&o.check, "check", false, "Only look, which is the default")
	cmd.Flags().BoolVar(&o.apply, "apply", false, "Take what is in the way out of the way")
	cmd.Flags().BoolVar(&o.back, "back", false, "Give back to KMM what --apply took")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "How long to wait for KMM's pods to work to an end, and then to stop")
	cmd.MarkFlagsMutuallyExclusive("check", "apply", "back")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if o.format.Machine() && (o.apply || o.back) {
		return errors.New("-o is for --check alone: --apply and --back print a line for each thing that they do")
	}
	switch {
	case o.apply:
		return o.forward(ctx)
	case o.back:
		return o.backward(ctx)
	}
	found, err := o.api.look(ctx)
	if err != nil {
		return err
	}
	report := judge(found)
	err = o.format.Print(o.Out, report, func(out io.Writer) { _, _ = fmt.Fprint(out, report.render(paint.For(o.Out))) })
	if err == nil && !report.Clear {
		return exit.ErrNotReady
	}
	return err
}

// say tells of a step that was done.
func (o *options) say(format string, args ...any) { _, _ = fmt.Fprintf(o.Out, format+"\n", args...) }

// refuse tells why nothing more is done, and what comes next.
func (o *options) refuse(why, next string) error {
	_, _ = fmt.Fprintf(o.Out, "Refused: %s\nNext step: %s\n", why, next)
	return exit.ErrNotReady
}

// render is the report for people: what is in the way comes first.
func (r *Report) render(p paint.Painter) string {
	var b strings.Builder
	b.WriteString(p.Strong(r.Answer) + "\nNext step: " + r.Next + "\n\n")
	items := slices.Clone(r.Items)
	slices.SortStableFunc(items, func(a, b Item) int { return order[a.State] - order[b.State] })
	for _, item := range items {
		text := item.Says
		if item.Object != "" {
			text = item.Object + ": " + text
		}
		fmt.Fprintf(&b, "  %s  %-11s  %s\n", mark(p, item.State), item.Kind, text)
		if item.Next != "" {
			fmt.Fprintf(&b, "%25s%s\n", "", item.Next)
		}
	}
	return b.String()
}

// order in which states are printed.
var order = map[State]int{You: 0, Apply: 1, Later: 2, Fine: 3}

func mark(p paint.Painter, s State) string {
	text := fmt.Sprintf("%-7s", s)
	switch s {
	case You:
		return p.Bad(text)
	case Apply:
		return p.Slow(text)
	case Fine:
		return p.Good(text)
	case Later:
	}
	return p.Faint(text)
}

// names says the first few names.
func names(all []string) string { return words.List(all, 3) }
