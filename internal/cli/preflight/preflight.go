// SPDX-License-Identifier: Apache-2.0

// Package preflight is `drover preflight`: whether the cluster's Modules are ready for a kernel.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// takeBack bounds how long an interrupted command waits for the API server.
const takeBack = 10 * time.Second

type options struct {
	genericiooptions.IOStreams
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
	o := &options{IOStreams: streams}
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
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.kernel = args[0]
			if err := kernel.CheckVersion(o.kernel); err != nil {
				return fmt.Errorf("KERNEL: %w", err)
			}
			if o.client, err = cluster.Connect(flags); err != nil {
				return err
			}
			return o.run(cmd.Context())
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

// run asks, waits and prints the answer.
func (o *options) run(ctx context.Context) (err error) {
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
	if !answered(p) {
		seen := func(event watch.EventType, now *v1beta2.PreflightValidation) (bool, string, error) {
			if event == watch.Deleted {
				return false, "", fmt.Errorf("PreflightValidation %s was deleted while drover waited for it", p.Name)
			}
			p = now
			return answered(p), standing(p), nil
		}
		err = cluster.Await(limited, o.ErrOut, o.client.WatchPreflight, p.Name, seen)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case err != nil && limited.Err() == nil:
		return err
	}
	r := reportOf(p)
	return o.format.Answer(o.Out, r, r.render(paint.For(o.Out)), r.Ready)
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

// Report is what programs read.
type Report struct {
	Name    string   `json:"name"`
	Kernel  string   `json:"kernel"`
	Ready   bool     `json:"ready"`
	Reason  string   `json:"reason,omitempty"`
	Message string   `json:"message"`
	Modules []Module `json:"modules"`
}

// Module is how one Module stands.
type Module struct {
	Namespace string                     `json:"namespace"`
	Name      string                     `json:"name"`
	Status    v1beta2.VerificationStatus `json:"status"`
	Image     string                     `json:"image,omitempty"`
	Reason    string                     `json:"reason,omitempty"`
	Message   string                     `json:"message"`
	Next      string                     `json:"next,omitempty"`
}

func reportOf(p *v1beta2.PreflightValidation) Report {
	r := Report{Name: p.Name, Kernel: p.Spec.KernelVersion, Message: standing(p), Modules: []Module{}}
	if c := condition(p); c != nil {
		r.Ready, r.Reason = c.Status == metav1.ConditionTrue, c.Reason
	}
	for _, m := range p.Status.Modules {
		r.Modules = append(r.Modules, Module{
			Namespace: m.Namespace, Name: m.Name, Status: m.VerificationStatus, Image: m.Image, Reason: m.Reason, Message: m.StatusReason,
			Next: reasons.Next(m.Reason),
		})
	}
	return r
}

func (r *Report) render(p paint.Painter) string {
	var b strings.Builder
	b.WriteString(p.Strong(r.Message+".") + "\n")
	if len(r.Modules) > 0 {
		b.WriteString("\n")
	}
	for _, m := range r.Modules {
		text := m.Message
		if m.Reason != "" {
			text = m.Reason + ": " + text
		}
		fmt.Fprintf(&b, "  %s  %s  %s\n", mark(p, m.Status), m.Namespace+"/"+m.Name, text)
		if m.Next != "" {
			fmt.Fprintf(&b, "             Next step: %s\n", m.Next)
		}
	}
	return b.String()
}

func mark(p paint.Painter, s v1beta2.VerificationStatus) string {
	switch s {
	case v1beta2.VerificationSuccess:
		return p.Good("ready    ")
	case v1beta2.VerificationFailure:
		return p.Bad("FAILED   ")
	case v1beta2.VerificationInProgress:
	}
	return p.Slow("unknown  ")
}
