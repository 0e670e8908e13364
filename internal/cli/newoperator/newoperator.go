// SPDX-License-Identifier: Apache-2.0

// Package newoperator is `drover new operator`: a small device operator that builds and passes its tests, to start one's own from.
package newoperator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/version"
)

// Options of the command.
type Options struct {
	genericiooptions.IOStreams

	// Name, Group and Kind are the operator's and its custom resource's.
	Name, Group, Kind string
	// Plural of the kind as URLs have it, and the path of the Go module; empty for usual ones.
	Plural, Module string
	// Dir is the folder to make; empty for Name in the working directory, or beside Drover's sources when that lies within them.
	Dir string
	// Replace is a folder with Drover's sources to build against; empty for the release that this program is of.
	Replace string
}

// NewCommand makes `new` with the one thing that it makes. It needs no cluster and no time.
func NewCommand(_ *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, _ clock.PassiveClock) *cobra.Command {
	o := &Options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "operator NAME --group GROUP --kind KIND",
		Short: "Write a small device operator that builds and passes its tests",
		Long: "Writes a Go module with an operator on Drover's kit: the type of a custom resource, what it becomes, tests against the real Drover on nodes\n" +
			"with fake kernels, manifests, Makefile and Dockerfile. It is ready to run, and yours to change. Needs no cluster.",
		Example: "  drover new operator acme-card-operator --group acme.example.com --kind Card --module example.com/acme-card-operator\n" +
			"  cd acme-card-operator && make test",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Name = args[0]
			return o.Run()
		},
	}
	cmd.Flags().StringVar(&o.Group, "group", "", "API group of the custom resource, such as acme.example.com")
	cmd.Flags().StringVar(&o.Kind, "kind", "", "Kind of the custom resource, such as Card")
	cmd.Flags().StringVar(&o.Plural, "plural", "", "The kind's plural in URLs (default: of English grammar)")
	cmd.Flags().StringVar(&o.Module, "module", "", "Path of the Go module (default: GROUP/NAME)")
	cmd.Flags().StringVar(&o.Dir, "dir", "", "Folder to make (default: NAME, beside Drover's sources when called within them)")
	cmd.Flags().StringVar(&o.Replace, "replace", "", "Folder with Drover's sources to build against, instead of a release")
	parent := &cobra.Command{Use: "new", Short: "Write something to start from", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	parent.AddCommand(cmd, newKindCommand(streams))
	return parent
}

// Run writes the operator. Nothing is written unless all is well.
func (o *Options) Run() error {
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
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

func (o *Options) complete() error {
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

// placement is the folder in which the operator's is made: the working directory, or beside Drover's sources when it lies within them. An operator
// is a project of its own, and its files must not become part of Drover's.
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

// vacant returns an error unless the folder is empty or not there.
func vacant(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the folder to make: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	switch _, err := f.Readdirnames(1); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("%s is no folder: %w", dir, err)
	}
	return fmt.Errorf("the folder %s is there already and not empty: choose another by --dir, or remove it", dir)
}

// release is the version of Drover to require.
func release() (string, error) {
	if !semantic.MatchString(version.Version) {
		return "", fmt.Errorf("this program (%s) is no release of Drover that a Go module could require: name a folder with its sources by --replace", version.Version)
	}
	return version.Version, nil
}
