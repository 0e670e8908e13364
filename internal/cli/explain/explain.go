// SPDX-License-Identifier: Apache-2.0

// Package explain is `drover explain`: why a Module is, or is not, in a node's kernel. It uses the
// operator's own pure functions, so that the two agree.
package explain

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/complete"
	"github.com/drover-project/drover/internal/cli/managed"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
)

type options struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	clock clock.PassiveClock

	client *cluster.Client
	format output.Format
	module string
	node   string
	// timeline: when each phase ended is shown, too.
	timeline bool
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, flags: flags, clock: clock}
	cmd := &cobra.Command{
		Use:   "explain MODULE [NODE]",
		Short: "Say why a Module is, or is not, in a node's kernel",
		Long: "Checks every step from a Module to a node's kernel, in order, and shows where it stops and what to do.\n" +
			"Without NODE, it groups all nodes by cause, the worst first. On a hub, MODULE may be a ManagedClusterModule.\n\n" +
			"Exit codes: 0 all is as the Module asks, 1 it is not, 2 the command failed.",
		Example: "  drover explain my-driver -n drivers           # all nodes, by cause\n" +
			"  drover explain my-driver node-7 -n drivers    # one node, every step\n" +
			"  drover explain my-driver node-7 --timeline    # and how long each phase took\n" +
			"  drover explain my-driver node-7 -o yaml       # for programs",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: complete.ModuleThenNode(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.module = args[0]
			if len(args) > 1 {
				o.node = args[1]
			}
			if o.timeline && o.node == "" {
				return errors.New("--timeline needs a NODE")
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.timeline, "timeline", false, "also show when the Module was ordered, delivered, loaded and ready on NODE")
	o.format.AddFlag(cmd, false)
	return cmd
}

// Text is what is said about a Module on all nodes.
func Text(ctx context.Context, c *cluster.Client, now time.Time, namespace, name string) (string, error) {
	m, err := c.Module(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	view, err := c.View(ctx, now, "", namespace, name)
	if err != nil {
		return "", err
	}
	f := blind(m, view.Missing)
	if view.Whole() {
		f = fleet(view, m)
	}
	return f.render(paint.Painter{}, m), nil
}

// run reads, decides and prints.
func (o *options) run(ctx context.Context) (err error) {
	if o.client, err = cluster.Connect(o.flags); err != nil {
		return err
	}
	m, onHub, err := o.client.Find(ctx, o.module, o.node == "")
	if err != nil {
		return err
	}
	if onHub != nil {
		one := managed.OneOf(onHub, o.clock.Now())
		var text strings.Builder
		one.Explain(&text, paint.For(o.Out))
		return o.format.Answer(o.Out, one, text.String(), one.State == managed.Ready)
	}
	view, err := o.client.View(ctx, o.clock.Now(), o.node, m.Namespace, m.Name)
	if err != nil {
		return err
	}
	p := paint.For(o.Out)
	if !view.Whole() || o.node == "" {
		f := blind(m, view.Missing)
		if view.Whole() {
			f = fleet(view, m)
		}
		return o.format.Answer(o.Out, f, f.render(p, m), f.State.settled())
	}
	s := subjectOf(view, m, &view.Nodes[0])
	if s.waits() {
		all, err := o.client.View(ctx, o.clock.Now(), "", m.Namespace, m.Name)
		if err != nil {
			return err
		}
		s.seeRollout(all)
	}
	if s.unanswered() {
		if err := view.SeeAgent(ctx, o.client, o.node); err != nil {
			return err
		}
	}
	t := s.trace()
	if o.timeline {
		t.Timeline = s.timeline()
	}
	return o.format.Answer(o.Out, t, t.render(p, view.Missing), t.State.settled())
}
