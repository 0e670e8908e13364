// SPDX-License-Identifier: Apache-2.0

// Package preflight is `drover preflight`: whether the cluster's Modules are ready for a kernel.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
)

// takeBack bounds how long an interrupted command waits for the API server.
const takeBack = 10 * time.Second

// Options of the command.
type Options struct {
	genericiooptions.IOStreams
	Flags *genericclioptions.ConfigFlags

	client  *cluster.Client
	format  output.Format
	kernel  string
	name    string
	labels  map[string]string
	push    bool
	timeout time.Duration
}

// NewCommand makes the command. Its clock is the machine's.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &Options{IOStreams: streams, Flags: flags}
	cmd := &cobra.Command{
		Use:   "preflight KERNEL",
		Short: "Say whether all Modules are ready for a kernel that no node runs yet",
		Long: "Asks the operator, by a PreflightValidation, whether each Module has an image for a kernel. It pulls and examines images that " +
			"exist, and\n" +
			"makes those that the cluster builds or signs as a test. It prints what it waits for on standard error, and finally each Module's " +
			"result. What\n" +
			"was made for the answer is deleted, except pushed images.\n\n" +
			"Exit codes: 0 all Modules are ready, 1 some are not or the time is over, 2 the command failed.",
		Example: "  drover preflight 6.1.0-44-amd64\n" +
			"  drover preflight 6.1.0-44-amd64 -l kubernetes.io/arch=amd64,gpu=yes --push\n" +
			"  drover preflight 6.1.0-44-amd64 --name debian-12-next -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.format.AddFlag(cmd, false)
	cmd.Flags().StringVar(&o.name, "name", "", "Keep the PreflightValidation under this name; if it exists, wait for its answer")
	cmd.Flags().StringToStringVarP(&o.labels, "labels", "l", nil, "Check only Modules that select a node with these labels (default: "+
		"all Modules)")
	cmd.Flags().BoolVar(&o.push, "push", false, "Push images that are built or signed for the answer")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Minute, "How long to wait")
	return cmd
}

// Complete finds the cluster.
func (o *Options) Complete(args []string) error {
	o.kernel = args[0]
	if err := o.format.Check(); err != nil {
		return err
	}
	var err error
	o.client, err = cluster.Connect(o.Flags)
	return err
}

// Run asks, waits and prints the answer.
func (o *Options) Run(ctx context.Context) (err error) {
	asked := &v1beta2.PreflightValidation{
		ObjectMeta: metav1.ObjectMeta{Name: o.name},
		Spec:       v1beta2.PreflightValidationSpec{KernelVersion: o.kernel, PushBuiltImage: o.push, Labels: o.labels},
	}
	if o.name == "" {
		asked.GenerateName = "drover-preflight-"
	}
	p, existed, err := o.client.CreatePreflight(ctx, asked)
	switch {
	case err != nil:
		return err
	case existed && p.Spec.KernelVersion != o.kernel:
		return fmt.Errorf("PreflightValidation %s is about kernel %s: delete it, or choose another --name", p.Name, p.Spec.KernelVersion)
	case o.name == "":
		defer func() {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBack)
			defer cancel()
			err = errors.Join(err, o.client.DeletePreflight(last, p))
		}()
	}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for !answered(p) && limited.Err() == nil {
		if p, err = o.follow(limited, p); err != nil && limited.Err() == nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	r := reportOf(p)
	if err := o.format.Print(o.Out, r, func(out io.Writer) { _, _ = fmt.Fprint(out, r.render(paint.For(o.Out))) }); err != nil {
		return err
	}
	if !r.Ready {
		return exit.ErrNotReady
	}
	return nil
}

func (o *Options) follow(ctx context.Context, p *v1beta2.PreflightValidation) (*v1beta2.PreflightValidation, error) {
	w, err := o.client.WatchPreflight(ctx, p.Name)
	if err != nil {
		return p, err
	}
	defer w.Stop()
	said := ""
	for event := range w.ResultChan() {
		now, ok := event.Object.(*v1beta2.PreflightValidation)
		if !ok {
			return p, nil // an error that ends the watch; a new one says more
		}
		if event.Type == watch.Deleted {
			return p, fmt.Errorf("PreflightValidation %s was deleted while drover waited for it", p.Name)
		}
		p = now
		if answered(p) {
			return p, nil
		}
		if text := standing(p); text != said {
			_, _ = fmt.Fprintln(o.ErrOut, "waiting:", text)
			said = text
		}
	}
	return p, nil
}

func condition(p *v1beta2.PreflightValidation) *metav1.Condition {
	c := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.ObservedGeneration != p.Generation {
		return nil
	}
	return c
}

// answered reports whether no Module is being examined any longer.
func answered(p *v1beta2.PreflightValidation) bool {
	return condition(p) != nil && !slices.ContainsFunc(p.Status.Modules, func(m v1beta2.PreflightValidationModuleStatus) bool {
		return m.VerificationStatus == v1beta2.VerificationInProgress
	})
}

func standing(p *v1beta2.PreflightValidation) string {
	if c := condition(p); c != nil {
		return c.Message
	}
	return "the operator has not processed it yet"
}
