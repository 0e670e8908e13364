// SPDX-License-Identifier: Apache-2.0

// Package complete completes names of Modules and nodes in the shell.
package complete

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/drover-project/drover/internal/cli/cluster"
)

// patience is how long a shell may wait for names.
const patience = 3 * time.Second

// Func completes arguments.
type Func = cobra.CompletionFunc

type lister func(context.Context, *cluster.Client) ([]string, error)

// Module completes one Module's name.
func Module(flags *genericclioptions.ConfigFlags) Func { return inOrder(flags, modules) }

// ModuleThenNode completes a Module's name, then a node's.
func ModuleThenNode(flags *genericclioptions.ConfigFlags) Func { return inOrder(flags, modules, nodes) }

func inOrder(flags *genericclioptions.ConfigFlags, kinds ...lister) Func {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(kinds) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ask(cmd.Context(), flags, kinds[len(args)]), cobra.ShellCompDirectiveNoFileComp
	}
}

// ask finds nothing if the cluster does not answer: a shell has no place for errors.
func ask(ctx context.Context, flags *genericclioptions.ConfigFlags, names lister) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := cluster.Connect(flags)
	if err != nil {
		return nil
	}
	found, err := names(ctx, c)
	if err != nil {
		return nil
	}
	return found
}

func modules(ctx context.Context, c *cluster.Client) ([]string, error) {
	list, err := c.ListModules(ctx, c.Namespace, "")
	names := make([]string, 0, len(list))
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names, err
}

func nodes(ctx context.Context, c *cluster.Client) ([]string, error) {
	list, err := c.Core.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err //nolint:wrapcheck // nobody reads it
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
