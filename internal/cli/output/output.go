// SPDX-License-Identifier: Apache-2.0

// Package output prints what a command found: for people, or as JSON or YAML for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is the value of -o; empty is for people.
type Format struct {
	text string
	wide bool
}

// AddFlag adds -o; wide says whether it offers wide.
func (f *Format) AddFlag(cmd *cobra.Command, wide bool) {
	f.wide = wide
	cmd.Flags().StringVarP(&f.text, "output", "o", "", "Output format: "+f.known())
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		if wide {
			return []string{"json", "yaml", "wide"}, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp
	})
}

func (f *Format) known() string {
	if f.wide {
		return "json, yaml or wide"
	}
	return "json or yaml"
}

// Check refuses a format that the command does not have.
func (f *Format) Check() error {
	switch {
	case f.text == "", f.text == "json", f.text == "yaml", f.text == "wide" && f.wide:
		return nil
	}
	return fmt.Errorf("unknown output format %q: want %s", f.text, f.known())
}

// Wide reports whether the user asked for more columns.
func (f *Format) Wide() bool { return f.text == "wide" }

// Machine reports whether a program reads the output.
func (f *Format) Machine() bool { return f.text == "json" || f.text == "yaml" }

// Print writes what was found: for people by person, otherwise encoded.
func (f *Format) Print(out io.Writer, found any, person func(io.Writer)) error {
	var text []byte
	var err error
	switch f.text {
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
		return fmt.Errorf("encode as %s: %w", f.text, err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
