// SPDX-License-Identifier: Apache-2.0

// Package version is `drover version`: of this program, and of what runs in the cluster as far as the user may see it.
package version

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/version"
)

// partOf is on everything of ours.
const partOf = "app.kubernetes.io/part-of=drover"

// Options of the command.
type Options struct {
	genericiooptions.IOStreams
	Flags *genericclioptions.ConfigFlags

	format     output.Format
	clientOnly bool
}

// Versions are what was found.
type Versions struct {
	Client string `json:"client"`
	Server []Part `json:"server,omitempty"`
	// Unseen says why the server's part is not there.
	Unseen string `json:"unseen,omitempty"`
}

// Part is one workload of Drover.
type Part struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// Ready of Desired pods.
	Ready   int32 `json:"ready"`
	Desired int32 `json:"desired"`
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &Options{IOStreams: streams, Flags: flags}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which version this is, and which runs in the cluster",
		Example: "  drover version --client",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	o.format.AddFlag(cmd, false)
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "Only this program's version; asks no cluster")
	return cmd
}

// Run reads and prints. A cluster that cannot be asked is told of, not failed for: the client's version is an answer too.
func (o *Options) Run(ctx context.Context) error {
	if err := o.format.Check(); err != nil {
		return err
	}
	v := Versions{Client: version.Version}
	if !o.clientOnly {
		parts, err := o.server(ctx)
		v.Server = parts
		switch {
		case apierrors.IsForbidden(err):
			v.Unseen = "you may not see the operator and the agents: that needs list on deployments.apps and daemonsets.apps (cluster-wide)"
		case err != nil:
			v.Unseen = err.Error()
		case len(parts) == 0:
			v.Unseen = "nothing of Drover runs in this cluster (no workload with the label " + partOf + ")"
		}
	}
	return o.format.Print(o.Out, v, v.render)
}

func (v *Versions) render(out io.Writer) {
	_, _ = fmt.Fprintln(out, "Client:", v.Client)
	for _, p := range v.Server {
		_, _ = fmt.Fprintf(out, "Server: %s, %s, %d of %d ready\n", p.Name, p.Image, p.Ready, p.Desired)
	}
	if v.Unseen != "" {
		_, _ = fmt.Fprintln(out, "Server: not known:", v.Unseen)
	}
}

func (o *Options) server(ctx context.Context) ([]Part, error) {
	config, err := o.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	apps, err := appsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	var parts []Part
	deployments, err := apps.Deployments("").List(ctx, metav1.ListOptions{LabelSelector: partOf})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		p := Part{Name: d.Namespace + "/" + d.Name, Ready: d.Status.ReadyReplicas, Desired: d.Status.Replicas}
		for _, c := range d.Spec.Template.Spec.Containers {
			p.Image = strings.TrimPrefix(p.Image+" "+c.Image, " ")
		}
		parts = append(parts, p)
	}
	sets, err := apps.DaemonSets("").List(ctx, metav1.ListOptions{LabelSelector: partOf})
	if err != nil {
		return parts, fmt.Errorf("list DaemonSets: %w", err)
	}
	for i := range sets.Items {
		d := &sets.Items[i]
		p := Part{Name: d.Namespace + "/" + d.Name, Ready: d.Status.NumberReady, Desired: d.Status.DesiredNumberScheduled}
		for _, c := range d.Spec.Template.Spec.Containers {
			p.Image = strings.TrimPrefix(p.Image+" "+c.Image, " ")
		}
		parts = append(parts, p)
	}
	return parts, nil
}
