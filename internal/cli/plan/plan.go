// SPDX-License-Identifier: Apache-2.0

// Package plan is `drover plan`: what applying a Module would do, before anything happens.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/modulefile"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/words"
)

type options struct {
	genericiooptions.IOStreams
	clock clock.PassiveClock

	client *cluster.Client
	format output.Format
	file   string
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, clock: clock}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Say what applying a Module would do, before anything happens",
		Long: "Compares the Modules of a file with the cluster: which nodes would load, reload or unload and why, in which order, and " +
			"which are\n" +
			"not covered. A dry run asks the API server whether it would take them. Nothing is changed.\n\n" +
			"Exit codes: 0 applying is fine, 1 it would be refused or leave nodes uncovered, 2 the command failed.",
		Example: "  drover plan -f module.yaml\n  kustomize build . | drover plan -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.file == "" {
				return errors.New("-f FILE is missing: name a file with Modules")
			}
			if o.client, err = cluster.Connect(flags); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.format.AddFlag(cmd, false)
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "File with Modules; - is standard input. Other objects are skipped")
	return cmd
}

// run reads, decides and prints.
func (o *options) run(ctx context.Context) error {
	modules, err := modulefile.Read(o.file, o.In)
	if err != nil {
		return err
	}
	p, fine, whole := paint.For(o.Out), true, true
	for i, m := range modules {
		m.Namespace = cmp.Or(m.Namespace, o.client.Namespace)
		plan, seen, err := o.plan(ctx, m)
		if err != nil {
			return err
		}
		fine, whole = fine && plan.fine(), whole && (seen || plan.Refused != "")
		if i > 0 && o.format.Machine() {
			_, _ = fmt.Fprintln(o.Out, "---")
		} else if i > 0 {
			_, _ = fmt.Fprintln(o.Out)
		}
		if err := o.format.Print(o.Out, plan, func(out io.Writer) { _, _ = fmt.Fprint(out, plan.render(p, seen)) }); err != nil {
			return err
		}
	}
	switch {
	case !fine:
		return exit.ErrNotReady
	case !whole:
		return errors.New("drover plan could not find out what would happen on nodes: see the missing rights above")
	}
	return nil
}

func (o *options) plan(ctx context.Context, m *v1beta1.Module) (p *Plan, seen bool, err error) {
	live, err := o.client.Module(ctx, m.Namespace, m.Name)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return nil, false, err
	}
	p = &Plan{Module: m.Namespace + "/" + m.Name, New: live == nil}
	next, err := o.client.DryRun(ctx, live, m)
	switch {
	case err == nil:
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "):
		p.Unasked = "you may not " + map[bool]string{true: "create", false: "update"}[p.New] + " Modules in namespace " + m.Namespace
		next = m
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		p.Refused = err.Error()
		return p, false, nil
	default:
		return nil, false, fmt.Errorf("try Module %s by a dry run: %w", p.Module, err)
	}
	view, err := o.client.View(ctx, o.clock.Now(), "", m.Namespace, m.Name)
	if err != nil {
		return nil, false, err
	}
	if err := view.SeePolicies(ctx, o.client, m.Namespace); err != nil {
		return nil, false, err
	}
	p.Missing, p.Plugin = view.Missing, plugin(live, next)
	if view.Whole() {
		p.Steps, p.Rollout = decide(live, next, view), foresee(next, view)
	}
	return p, view.Whole(), nil
}

func (p *Plan) fine() bool {
	return p.Refused == "" &&
		!slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Action == NotCovered || s.Action == Blocked })
}

func (p *Plan) answer(seen bool) string {
	kind := "changed"
	if p.New {
		kind = "new"
	}
	switch {
	case p.Refused != "":
		return fmt.Sprintf("Module %s (%s) would be refused.", p.Module, kind)
	case !seen:
		return fmt.Sprintf("Module %s (%s): you may not see what would happen on nodes.", p.Module, kind)
	}
	count := map[Action]int{}
	for _, s := range p.Steps {
		count[s.Action] += len(s.Nodes)
	}
	var parts []string
	for _, action := range []Action{Load, Reload, Unload, NotCovered, Blocked, LeftAlone, Unchanged} {
		if n := count[action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("Module %s (%s) concerns no node of this cluster.", p.Module, kind)
	}
	return fmt.Sprintf("Module %s (%s): %s.", p.Module, kind, strings.Join(parts, ", "))
}

func (p *Plan) render(c paint.Painter, seen bool) string {
	var b strings.Builder
	b.WriteString(c.Strong(p.answer(seen)) + "\n")
	switch {
	case p.Refused != "":
		b.WriteString("The API server says: " + p.Refused + "\n")
	case p.Unasked != "":
		b.WriteString("Admission was not tried: " + p.Unasked + "\n")
	default:
		b.WriteString("The API server would take it (dry run); nothing was changed.\n")
	}
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "\n%s  %d: %s\n", paintAction(c, s.Action), len(s.Nodes), words.List(s.Nodes, most))
		if s.Why != "" {
			fmt.Fprintf(&b, "             %s\n", s.Why)
		}
	}
	b.WriteString(p.Rollout.render(c))
	if p.Plugin != "" {
		fmt.Fprintf(&b, "\nDevice plugin or DRA driver: %s\n", p.Plugin)
	}
	b.WriteString(cluster.Tell(p.Missing))
	return b.String()
}

func paintAction(c paint.Painter, action Action) string {
	text := fmt.Sprintf("%-11s", strings.ToUpper(string(action)))
	switch action {
	case NotCovered, Blocked, Unload:
		return c.Bad(text)
	case Reload:
		return c.Slow(text)
	case Load:
		return c.Good(text)
	case LeftAlone, Unchanged:
	}
	return c.Faint(text)
}

// most is how many nodes or steps are named.
const most = 8
