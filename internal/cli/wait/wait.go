// SPDX-License-Identifier: Apache-2.0

// Package wait is `drover wait`: until a Module is ready, gone, or has a condition. Meanwhile it
// says what it waits for, and in the end what is in the way.
package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/complete"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/shared/reasons"
)

type options struct {
	genericiooptions.IOStreams
	client  *cluster.Client
	module  string
	until   string
	timeout time.Duration
	goal    goal
}

type goal struct {
	gone      bool
	condition string
	status    metav1.ConditionStatus
}

// NewCommand makes the command. Its clock is the machine's.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "wait MODULE",
		Short: "Wait until a Module is ready",
		Long: "Waits until the newest version of a Module is ready, gone, or has a condition, and prints what it waits for on standard " +
			"error.\n\n" +
			"Exit codes: 0 the Module is so, 1 the time is over, 2 the command failed.",
		Example: "  drover wait my-driver -n drivers --timeout 10m\n" +
			"  drover wait my-driver --for=condition=Loaded\n" +
			"  drover wait my-driver --for=deleted",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: complete.Module(flags),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.module = args[0]
			if o.goal, err = parse(o.until); err != nil {
				return err
			}
			if o.client, err = cluster.Connect(flags); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.until, "for", "ready", "What to wait for: ready, deleted, or condition=TYPE[=STATUS]")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "How long to wait; 0 looks once")
	return cmd
}

func parse(until string) (goal, error) {
	kind, rest, _ := strings.Cut(until, "=")
	switch {
	case until == "ready":
		return goal{condition: v1beta1.ConditionReady, status: metav1.ConditionTrue}, nil
	case until == "deleted" || until == "delete":
		return goal{gone: true}, nil
	case kind == "condition" && rest != "":
		condition, status, given := strings.Cut(rest, "=")
		if !given {
			status = string(metav1.ConditionTrue)
		}
		return goal{condition: condition, status: metav1.ConditionStatus(status)}, nil
	}
	return goal{}, fmt.Errorf("cannot wait for %q: want ready, deleted or condition=TYPE[=STATUS]", until)
}

func (o *options) run(ctx context.Context) error {
	m, err := o.client.Module(ctx, o.client.Namespace, o.module)
	switch {
	case errors.Is(err, cluster.ErrNotFound) && o.goal.gone:
		return o.done()
	case err != nil:
		return err
	case o.goal.reached(m):
		return o.done()
	case o.timeout <= 0:
		return o.late(m)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	seen := func(event watch.EventType, now *v1beta1.Module) (bool, string, error) {
		m = now
		if event == watch.Deleted && !o.goal.gone {
			return false, "", fmt.Errorf("drover waited for Module %s in namespace %s, which was deleted", o.module, o.client.Namespace)
		}
		return event == watch.Deleted || o.goal.reached(now), standing(now), nil
	}
	err = cluster.Await(ctx, o.ErrOut, o.client.WatchModule, o.module, seen)
	switch {
	case err == nil:
		return o.done()
	case ctx.Err() != nil:
		return o.late(m)
	}
	return err
}

func (g goal) reached(m *v1beta1.Module) bool {
	if g.gone {
		return false
	}
	c := meta.FindStatusCondition(m.Status.Conditions, g.condition)
	return c != nil && c.Status == g.status && c.ObservedGeneration == m.Generation
}

func standing(m *v1beta1.Module) string {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.ObservedGeneration != m.Generation {
		return "the operator has not processed the newest version yet"
	}
	text, _, _ := strings.Cut(c.Message, "\n")
	return c.Reason + ": " + text
}

func (o *options) done() error {
	how := "is ready"
	switch {
	case o.goal.gone:
		how = "is gone"
	case o.goal.condition != v1beta1.ConditionReady || o.goal.status != metav1.ConditionTrue:
		how = fmt.Sprintf("has the condition %s=%s", o.goal.condition, o.goal.status)
	}
	_, _ = fmt.Fprintf(o.Out, "Module %s/%s %s.\n", o.client.Namespace, o.module, how)
	return nil
}

func (o *options) late(m *v1beta1.Module) error {
	_, _ = fmt.Fprintf(o.Out, "Module %s/%s has not reached %q after %s: %s\n", m.Namespace, m.Name, o.until, o.timeout, standing(m))
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); c != nil && reasons.Next(c.Reason) != "" {
		_, _ = fmt.Fprintln(o.Out, "Next step:", reasons.Next(c.Reason))
	}
	_, _ = fmt.Fprintf(o.Out, "Why: drover explain %s -n %s\n", m.Name, m.Namespace)
	return exit.ErrNotReady
}
