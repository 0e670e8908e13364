// SPDX-License-Identifier: Apache-2.0

// Package version is `drover version`: of this program, and of what runs in the cluster.
package version

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/cli/output"
	"github.com/drover-project/drover/internal/shared/version"
)

// partOf is on everything of ours.
const partOf = "app.kubernetes.io/part-of=drover"

type options struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags

	format     output.Format
	clientOnly bool
}

// Versions are what was found.
type Versions struct {
	Client string `json:"client"`
	Server []Part `json:"server,omitempty"`
	Unseen string `json:"unseen,omitempty"` // why the server's part is missing
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
	o := &options{IOStreams: streams, flags: flags}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which version this is, and which runs in the cluster",
		Example: "  drover version --client",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.format.AddFlag(cmd, false)
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "Only this program's version; asks no cluster")
	return cmd
}

// run reads and prints. It needs no cluster: the client's version is an answer, too.
func (o *options) run(ctx context.Context) error {
	v := Versions{Client: version.Version}
	if !o.clientOnly {
		parts, err := o.server(ctx)
		v.Server = parts
		switch {
		case apierrors.IsForbidden(err):
			v.Unseen = "you may not list deployments.apps and daemonsets.apps (cluster-wide), which show the operator and the agents"
		case err != nil:
			v.Unseen = err.Error()
		case len(parts) == 0:
			v.Unseen = "no workload has the label " + partOf
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
		_, _ = fmt.Fprintln(out, "Server: unknown:", v.Unseen)
	}
}

func (o *options) server(ctx context.Context) ([]Part, error) {
	config, err := o.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	apps, err := appsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	var parts []Part
	add := func(of metav1.ObjectMeta, template corev1.PodTemplateSpec, ready, desired int32) {
		var images []string
		for i := range template.Spec.Containers {
			images = append(images, template.Spec.Containers[i].Image)
		}
		parts = append(parts, Part{Name: of.Namespace + "/" + of.Name, Image: strings.Join(images, " "), Ready: ready, Desired: desired})
	}
	deployments, err := apps.Deployments("").List(ctx, metav1.ListOptions{LabelSelector: partOf})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	for _, d := range deployments.Items {
		add(d.ObjectMeta, d.Spec.Template, d.Status.ReadyReplicas, d.Status.Replicas)
	}
	sets, err := apps.DaemonSets("").List(ctx, metav1.ListOptions{LabelSelector: partOf})
	if err != nil {
		return parts, fmt.Errorf("list DaemonSets: %w", err)
	}
	for _, d := range sets.Items {
		add(d.ObjectMeta, d.Spec.Template, d.Status.NumberReady, d.Status.DesiredNumberScheduled)
	}
	return parts, nil
}
