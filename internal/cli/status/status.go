// SPDX-License-Identifier: Apache-2.0

// Package status is `drover status`: the state of all Modules, or of one Module on each node.
package status

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

type options struct {
	genericiooptions.IOStreams
	clock clock.PassiveClock

	client *cluster.Client
	format output.Format
	module string
	// namespace of the Modules to show; empty: all.
	namespace string
	selector  string
	all       bool
	watch     bool
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, clock: clock}
	cmd := &cobra.Command{
		Use:   "status [MODULE]",
		Short: "Show the state of Modules: loaded, failing, and the worst reason",
		Long: "Without MODULE, one line per Module; with MODULE, one line per node, the worst first.\n" +
			"On a hub, ManagedClusterModules are shown as well; with the name of one, one line per cluster.\n\n" +
			"Exit codes: 0 every Module shown is ready, 1 one is not, 2 the command failed.",
		Example: "  drover status -A                  # all Modules of the cluster\n" +
			"  drover status my-driver --watch   # its nodes, again whenever something changes\n" +
			"  drover status -l team=storage -o json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: complete.Module(flags),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				o.module = args[0]
			}
			switch {
			case o.module != "" && (o.all || o.selector != ""):
				return fmt.Errorf("give either MODULE or one of -A and -l")
			case o.watch && o.format.Machine():
				return fmt.Errorf("--watch is for people: omit -o json or yaml")
			}
			if o.client, err = cluster.Connect(flags); err != nil {
				return err
			}
			if !o.all {
				o.namespace = o.client.Namespace
			}
			if o.watch {
				return o.follow(cmd.Context())
			}
			return verdict(o.print(cmd.Context(), o.Out))
		},
	}
	o.format.AddFlag(cmd, true)
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "Show the Modules of all namespaces")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "Show only Modules with these labels")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Show it again whenever something changes, until Ctrl-C")
	return cmd
}

func verdict(state string, err error) error {
	if err == nil && state != ready {
		return exit.ErrNotReady
	}
	return err
}

func (o *options) print(ctx context.Context, out io.Writer) (state string, err error) {
	p := paint.For(o.Out)
	if o.module != "" {
		m, onHub, err := o.client.Find(ctx, o.module, true)
		if err != nil {
			return "", err
		}
		if onHub != nil {
			one := managed.OneOf(onHub, o.clock.Now())
			return one.State, o.format.Print(out, one, func(out io.Writer) { one.Render(out, p, o.format.Wide()) })
		}
		view, err := o.client.View(ctx, o.clock.Now(), "", m.Namespace, m.Name)
		if err != nil {
			return "", err
		}
		n := nodes(m, view)
		return n.State, o.format.Print(out, n, func(out io.Writer) { n.render(out, p, o.format.Wide()) })
	}
	list, err := o.client.ListModules(ctx, o.namespace, o.selector)
	if err != nil {
		return "", err
	}
	view, err := o.client.View(ctx, o.clock.Now(), "", o.namespace, "")
	if err != nil {
		return "", err
	}
	f := Fleet{Missing: view.Missing}
	if o.selector == "" {
		hub, err := o.client.Managed(ctx)
		if err != nil {
			return "", err
		}
		for i := range hub {
			f.Managed = append(f.Managed, managed.RowOf(&hub[i], view.Now))
		}
	}
	for i := range list {
		f.Modules = append(f.Modules, row(&list[i], view))
	}
	return f.state(), o.format.Print(out, f, func(out io.Writer) { f.render(out, p, o.format.Wide()) })
}

// rest is the shortest time between two pictures: a rollout changes the status many times a second.
const rest = time.Second

const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

// follow prints whenever a Module's status changes. On a terminal the picture stays in place.
func (o *options) follow(ctx context.Context) error {
	shown := metav1.ListOptions{LabelSelector: o.selector, Limit: 1}
	if o.module != "" {
		shown.FieldSelector = "metadata.name=" + o.module
	}
	var last []byte
	state := ""
	for {
		moved, err := o.client.NextChange(ctx, o.namespace, shown)
		if err != nil {
			return endOf(ctx, state, err)
		}
		var picture bytes.Buffer
		now, err := o.print(ctx, &picture)
		if err != nil {
			return endOf(ctx, state, err)
		}
		state = now
		if !bytes.Equal(last, picture.Bytes()) {
			if paint.Terminal(o.Out) {
				_, _ = fmt.Fprint(paint.Raw(o.Out), clearScreen)
			} else if last != nil {
				_, _ = fmt.Fprintln(o.Out)
			}
			_, _ = o.Out.Write(picture.Bytes())
			last = picture.Bytes()
		}
		select {
		case <-ctx.Done():
			return verdict(state, nil)
		case <-time.After(rest):
		}
		<-moved // at the latest when ctx ends
	}
}

func endOf(ctx context.Context, state string, err error) error {
	if ctx.Err() != nil {
		return verdict(state, nil)
	}
	return err
}
