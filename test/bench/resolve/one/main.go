// SPDX-License-Identifier: Apache-2.0

// Command one prints the files that Drover would load for one module, in order: what `modprobe
// --show-depends` does, as a process of its own. Arguments: the folder of a kernel's modules, and
// the module's name.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/drover-project/drover/internal/shared/kmod"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "one:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: one FOLDER MODULE")
	}
	tree, err := kmod.NewIndexedTree(os.DirFS(args[0]))
	if err != nil {
		return err
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: args[1:]}, nil, tree)
	if err != nil {
		return err
	}
	for _, step := range steps {
		fmt.Println(step.Path)
	}
	return nil
}
