// SPDX-License-Identifier: Apache-2.0

// Package output prints what a command found: for people, or as JSON or YAML for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/cli/exit"
)

// Format is the value of -o; empty is for people.
type Format string

// AddFlag adds -o to a command, which refuses other values; wide says whether it offers wide.
func (f *Format) AddFlag(cmd *cobra.Command, wide bool) {
	known, text := []string{"json", "yaml"}, "json or yaml"
	if wide {
		known, text = append(known, "wide"), "json, yaml or wide"
	}
	cmd.Flags().StringVarP((*string)(f), "output", "o", "", "Output format: "+text)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *f != "" && !slices.Contains(known, string(*f)) {
			return fmt.Errorf("unknown output format %q: want %s", *f, text)
		}
		return nil
	}
}

// Wide reports whether the user asked for more columns.
func (f Format) Wide() bool { return f == "wide" }

// Machine reports whether a program reads the output.
func (f Format) Machine() bool { return f == "json" || f == "yaml" }

// Print writes what was found: for people by person, otherwise encoded.
func (f Format) Print(out io.Writer, found any, person func(io.Writer)) error {
	var text []byte
	var err error
	switch f {
	case "json":
		text, err = json.MarshalIndent(found, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(found)
	default:
		person(out)
		return nil
	}
	if err != nil {
		return fmt.Errorf("encode as %s: %w", f, err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Answer prints what was found, for people as text, and says by its error whether all is ready.
func (f Format) Answer(out io.Writer, found any, text string, ready bool) error {
	if err := f.Print(out, found, func(out io.Writer) { _, _ = fmt.Fprint(out, text) }); err != nil {
		return err
	}
	if !ready {
		return exit.ErrNotReady
	}
	return nil
}
