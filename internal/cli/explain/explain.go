// SPDX-License-Identifier: Apache-2.0

// Package explain is `drover explain`: why a Module is, or is not, in a node's kernel. It uses the
// operator's own pure functions, so that the two agree.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/complete"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/managed"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
)

// Options of the command.
type Options struct {
	genericiooptions.IOStreams
	Flags *genericclioptions.ConfigFlags
	Clock clock.PassiveClock

	client *cluster.Client
	format output.Format
	module string
	node   string
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &Options{IOStreams: streams, Flags: flags, Clock: clock}
	cmd := &cobra.Command{
		Use:   "explain MODULE [NODE]",
		Short: "Say why a Module is, or is not, in a node's kernel",
		Long: "Checks every step from a Module to a node's kernel, in order, and shows where it stops and what to do.\n" +
			"Without NODE, it groups all nodes by cause, the worst first. On a hub, MODULE may be a ManagedClusterModule.\n\n" +
			"Exit codes: 0 all is as the Module asks, 1 it is not, 2 the command failed.",
		Example: "  drover explain my-driver -n drivers           # all nodes, by cause\n" +
			"  drover explain my-driver node-7 -n drivers    # one node, every step\n" +
			"  drover explain my-driver node-7 -o yaml       # for programs",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: complete.ModuleThenNode(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.format.AddFlag(cmd, false)
	return cmd
}

// Complete finds the cluster and the objects' names.
func (o *Options) Complete(args []string) error {
	o.module = args[0]
	if len(args) > 1 {
		o.node = args[1]
	}
	if err := o.format.Check(); err != nil {
		return err
	}
	var err error
	o.client, err = cluster.Connect(o.Flags)
	return err
}

// Run reads, decides and prints.
func (o *Options) Run(ctx context.Context) error {
	m, err := o.client.Module(ctx, o.module)
	if errors.Is(err, cluster.ErrNotFound) && o.node == "" {
		return o.managed(ctx, err)
	}
	if err != nil {
		return err
	}
	view, err := o.client.View(ctx, o.node, m.Namespace, m.Name)
	if err != nil {
		return err
	}
	view.Now = o.Clock.Now()
	p := paint.For(o.Out)
	switch {
	case !view.Whole():
		f := blind(m, view.Missing)
		return o.tell(f, f.State, func(out io.Writer) { _, _ = fmt.Fprint(out, f.render(p, m)) })
	case o.node == "":
		f := fleet(view, m)
		return o.tell(f, f.State, func(out io.Writer) { _, _ = fmt.Fprint(out, f.render(p, m)) })
	}
	if unanswered(view, m, &view.Nodes[0]) {
		if err := view.SeeAgent(ctx, o.client, o.node); err != nil {
			return err
		}
	}
	t := trace(view, m, &view.Nodes[0], view.Now)
	return o.tell(t, t.State, func(out io.Writer) { _, _ = fmt.Fprint(out, t.render(p, view.Missing)) })
}

func (o *Options) managed(ctx context.Context, none error) error {
	m, err := o.client.ManagedModule(ctx, o.module)
	if err != nil {
		return err
	}
	if m == nil {
		return none
	}
	one := managed.OneOf(m, o.Clock.Now())
	return o.tell(one, State(strings.ToLower(one.State)), func(out io.Writer) { one.Explain(out, paint.For(o.Out)) })
}

func (o *Options) tell(answer any, state State, person func(io.Writer)) error {
	if err := o.format.Print(o.Out, answer, person); err != nil {
		return err
	}
	if state == Waiting || state == Failed {
		return exit.ErrNotReady
	}
	return nil
}
