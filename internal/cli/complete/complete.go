// SPDX-License-Identifier: Apache-2.0

// Package complete completes names of Modules and nodes in the shell.
package complete

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/drover-project/drover/internal/cli/cluster"
)

// patience is how long a shell may wait for names.
const patience = 3 * time.Second

type lister func(context.Context, *cluster.Client) ([]string, error)

// Module completes one Module's name.
func Module(flags *genericclioptions.ConfigFlags) cobra.CompletionFunc {
	return inOrder(flags, modules)
}

// ModuleThenNode completes a Module's name, then a node's.
func ModuleThenNode(flags *genericclioptions.ConfigFlags) cobra.CompletionFunc {
	return inOrder(flags, modules, nodes)
}

// inOrder completes one argument of each kind. A shell has no place for errors.
func inOrder(flags *genericclioptions.ConfigFlags, kinds ...lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(kinds) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := cluster.Connect(flags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		found, _ := kinds[len(args)](ctx, c)
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func modules(ctx context.Context, c *cluster.Client) ([]string, error) {
	list, err := c.ListModules(ctx, c.Namespace, "")
	return names(list), err
}

func nodes(ctx context.Context, c *cluster.Client) ([]string, error) {
	list, err := c.Nodes(ctx)
	return names(list), err
}

func names[T any, O interface {
	*T
	GetName() string
}](list []T) []string {
	var all []string
	for i := range list {
		all = append(all, O(&list[i]).GetName())
	}
	return all
}
