// SPDX-License-Identifier: Apache-2.0

// Package preflight is `drover preflight`: whether the Modules of the cluster are ready for a kernel, asked by a PreflightValidation.
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

// takeBack bounds how long a command that was interrupted waits for the API server.
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

// NewCommand makes the command. Its time is the machine's.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &Options{IOStreams: streams, Flags: flags}
	cmd := &cobra.Command{
		Use:   "preflight KERNEL",
		Short: "Say whether all Modules are ready for a kernel that no node runs yet",
		Long: "Asks the operator, by a PreflightValidation, whether each Module has an image for a kernel: one that is there is pulled and examined, one that is\n" +
			"built or signed in the cluster is made for a try. Says on standard error what it waits for, and at the end how each Module stands. What was\n" +
			"made for the answer is deleted, but for images that were pushed.\n\n" +
			"Ends with 0 when all Modules are ready, with 1 when some are not or the time is over, and with 2 when it could not be asked.",
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
	cmd.Flags().StringVar(&o.name, "name", "", "Keep the PreflightValidation under this name; if it is there already, wait for its answer")
	cmd.Flags().StringToStringVarP(&o.labels, "labels", "l", nil, "Labels of a node with the kernel: only Modules that select it; all Modules otherwise")
	cmd.Flags().BoolVar(&o.push, "push", false, "Push images that are built or signed on the way")
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

// Run asks, waits, and says what was found.
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

// follow watches until there is an answer or the watch ends, and returns the newest that was seen.
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
			return p, fmt.Errorf("PreflightValidation %s was deleted while it was waited for", p.Name)
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

// answered reports whether nothing is looked at any more.
func answered(p *v1beta2.PreflightValidation) bool {
	return condition(p) != nil && !slices.ContainsFunc(p.Status.Modules, func(m v1beta2.PreflightValidationModuleStatus) bool {
		return m.VerificationStatus == v1beta2.VerificationInProgress
	})
}

func standing(p *v1beta2.PreflightValidation) string {
	if c := condition(p); c != nil {
		return c.Message
	}
	return "the operator has not looked at it yet"
}
