// SPDX-License-Identifier: Apache-2.0

// Package retry is `drover retry`: agents try failures again at once, and forget strikes.
package retry

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/shared/placement"
)

type options struct {
	genericiooptions.IOStreams
	clock clock.PassiveClock

	client    metadata.Interface
	namespace string
	module    string
	node      string
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, clock: clock}
	return &cobra.Command{
		Use:   "retry MODULE [NODE]",
		Short: "Try again at once, and forget what failed before",
		Long: "Asks the agents to forget earlier failures of a Module: pauses between tries, the kernel's refusals, and quarantines of builds " +
			"that took\n" +
			"the node down. With NODE, it asks only that node, for all Modules. On a hub, it has the images of a ManagedClusterModule\n" +
			"tried again that the hub makes; what failed on a cluster's nodes is retried there.",
		Example: "  drover retry my-driver -n drivers          # on every node; a rollout that a crash stopped goes on\n" +
			"  drover retry my-driver node-7 -n drivers   # on one node; its result decides whether the rollout goes on",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.module = args[0]
			if len(args) > 1 {
				o.node = args[1]
			}
			config, namespace, err := cluster.Config(flags)
			if err != nil {
				return err
			}
			o.namespace = namespace
			if o.client, err = metadata.NewForConfig(config); err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			return o.run(cmd.Context())
		},
	}
}

// run sets the annotation and says how to follow the result.
func (o *options) run(ctx context.Context) error {
	target, module, err := o.find(ctx)
	if err != nil {
		return err
	}
	objects := []*metav1.PartialObjectMetadata{module}
	if o.node != "" {
		target = o.client.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
		node, err := target.Get(ctx, o.node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Node %s: %w", o.node, err)
		}
		objects = append(objects, node)
	}
	at := newer(o.clock.Now(), objects)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1beta1.RetryAnnotation: at}}})
	if err != nil {
		return fmt.Errorf("encode the annotation: %w", err)
	}
	name := objects[len(objects)-1].Name
	if _, err := target.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "drover"}); err != nil {
		return fmt.Errorf("annotate %s: %w", name, err)
	}
	for _, object := range objects {
		if placement.Paused(object) {
			_, _ = fmt.Fprintf(o.ErrOut, "Note: %s is paused. Nothing is tried until you remove the annotation %s.\n", object.Name,
				v1beta1.PausedAnnotation)
		}
	}
	if module.Namespace == "" {
		_, _ = fmt.Fprint(o.Out, doneOnHub(o.module, at))
	} else {
		_, _ = fmt.Fprint(o.Out, done(o.namespace, o.module, o.node, at))
	}
	return nil
}

// find returns the Module or, where there is none of that name, the ManagedClusterModule of a hub.
func (o *options) find(ctx context.Context) (metadata.ResourceInterface, *metav1.PartialObjectMetadata, error) {
	modules := o.client.Resource(v1beta1.GroupVersion.WithResource("modules")).Namespace(o.namespace)
	module, err := modules.Get(ctx, o.module, metav1.GetOptions{})
	if err == nil {
		return modules, module, nil
	}
	err = fmt.Errorf("get Module %s in namespace %s: %w", o.module, o.namespace, err)
	if !apierrors.IsNotFound(err) || o.node != "" {
		return nil, nil, err
	}
	managed := o.client.Resource(hubv1beta1.GroupVersion.WithResource("managedclustermodules"))
	if module, errManaged := managed.Get(ctx, o.module, metav1.GetOptions{}); errManaged == nil {
		return managed, module, nil
	}
	return nil, nil, err
}

// newer is now, or later: agents ignore a time that is not newer than the last request's.
func newer(now time.Time, objects []*metav1.PartialObjectMetadata) string {
	at := now.UTC().Truncate(time.Second)
	for _, object := range objects {
		if last := placement.RetryAsked(object); !at.After(last) {
			at = last.Add(time.Second)
		}
	}
	return at.Format(time.RFC3339)
}

func doneOnHub(name, at string) string {
	return fmt.Sprintf("Asked for the images that the hub makes for ManagedClusterModule %s to be tried again (%s=%s).\nTo watch:\n"+
		"  drover status %[1]s\n  kubectl get moduleimages -n drover-system\nWhat failed on the nodes of a cluster is retried there: drover "+
		"retry %[1]s -n NAMESPACE, by that cluster's kubeconfig\n", name, v1beta1.RetryAnnotation, at)
}

func done(namespace, module, node, at string) string {
	var b strings.Builder
	watch := "kubectl get nmc                 # all nodes; for one: kubectl get nmc NODE -o yaml"
	if node == "" {
		fmt.Fprintf(&b, "Asked all nodes of Module %s/%s to forget earlier failures and try again (%s=%s on the Module).\n", namespace, module,
			v1beta1.RetryAnnotation, at)
	} else {
		fmt.Fprintf(&b, "Asked node %s to forget earlier failures and try again, for all Modules (%s=%s on the Node).\n", node,
			v1beta1.RetryAnnotation, at)
		watch = "kubectl get nmc " + node + " -o yaml"
	}
	fmt.Fprintf(&b, "To watch:\n  %s\n  kubectl get module %s -n %s -o yaml\n", watch, module, namespace)
	return b.String()
}
