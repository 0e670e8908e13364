// SPDX-License-Identifier: Apache-2.0

// Package newoperator is `drover new operator`: a small device operator to start one's own from.
package newoperator

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

type options struct {
	genericiooptions.IOStreams

	// Name, Group and Kind are the operator's and its custom resource's.
	Name, Group, Kind string
	// Plural of the kind in URLs, and path of the Go module; empty: the usual ones.
	Plural, Module string
	// Dir to make; empty: Name in the working directory, or beside Drover's sources if within them.
	Dir string
	// Replace is a folder with Drover's sources to build against; empty: this program's release.
	Replace string
}

// NewCommand makes `new` with its subcommands. It needs no cluster and no time.
func NewCommand(_ *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "operator NAME --group GROUP --kind KIND",
		Short: "Write a small device operator that builds and passes its tests",
		Long: "Writes a Go module with an operator on Drover's kit: the type of a custom resource, what it becomes, tests against the real " +
			"Drover on nodes\n" +
			"with fake kernels, manifests, Makefile and Dockerfile. It is ready to run, and yours to change. Needs no cluster.",
		Example: "  drover new operator acme-card-operator --group acme.example.com --kind Card --module example.com/acme-card-operator\n" +
			"  cd acme-card-operator && make test",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Name = args[0]
			return o.run()
		},
	}
	cmd.Flags().StringVar(&o.Group, "group", "", "API group of the custom resource, such as acme.example.com")
	cmd.Flags().StringVar(&o.Kind, "kind", "", "Kind of the custom resource, such as Card")
	cmd.Flags().StringVar(&o.Plural, "plural", "", "The kind's plural in URLs (default: the English plural)")
	cmd.Flags().StringVar(&o.Module, "module", "", "Path of the Go module (default: GROUP/NAME)")
	cmd.Flags().StringVar(&o.Dir, "dir", "", "Folder to make (default: NAME, beside Drover's sources if called within them)")
	cmd.Flags().StringVar(&o.Replace, "replace", "", "Folder with Drover's sources to build against, instead of a release")
	parent := &cobra.Command{
		Use: "new", Short: "Write something to start from", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	parent.AddCommand(cmd, newKindCommand(streams))
	return parent
}

// run writes the operator, or nothing on an error.
func (o *options) run() error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := errors.Join(o.validateName(), o.validateGroup(), o.validateKind(), o.validateModule()); err != nil {
		return err
	}
	if err := vacant(o.Dir); err != nil {
		return err
	}
	files, err := o.files()
	if err != nil {
		return err
	}
	if err := write(o.Dir, files); err != nil {
		return err
	}
	next := "make test"
	if o.Replace == "" {
		next = "go mod tidy && make test"
	}
	fmt.Fprintf(o.Out, "%d files in %s. Next: cd %s && %s\n", len(files), o.Dir, o.Dir, next)
	return nil
}

func (o *options) complete() error {
	if o.Dir == "" {
		parent, err := placement()
		if err != nil {
			return err
		}
		o.Dir = filepath.Join(parent, o.Name)
	}
	if o.Module == "" {
		o.Module = o.Group + "/" + o.Name
	}
	if o.Plural == "" {
		o.Plural = plural(o.Kind)
	}
	return nil
}

// placement is the folder in which to make the operator's: the working directory, or beside
// Drover's sources if it lies within them, since the operator must not become part of Drover.
func placement() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find a place for the operator: %w", err)
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module "+drover+"\n")) {
			return filepath.Dir(dir), nil
		}
		if dir == filepath.Dir(dir) {
			return "", nil
		}
	}
}

func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s is not a folder: %w", dir, err)
	case err != nil:
		return fmt.Errorf("look at the folder to make: %w", err)
	}
	return fmt.Errorf("the folder %s exists and is not empty: choose another with --dir, or remove it", dir)
}
