// SPDX-License-Identifier: Apache-2.0

// Command licences writes the page docs/reference/dependencies.md: each Go module that is linked
// into a program of ours that people install, with its version and licence, and what else is in
// images. It fails if a licence is not recognised or not allowed. It reads the module cache, or
// vendor/, and no network.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/images/licence"
)

// page is what is written, from the repository's root.
const page = "docs/reference/dependencies.md"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string) error {
	sources, err := licence.FindSources(ctx, root)
	if err != nil {
		return err
	}
	modules, err := linked(ctx, root, shipped())
	if err != nil {
		return err
	}
	if err := judge(modules, sources.Module); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(page)), []byte(render(modules)), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// shipped are the folders of the main packages that people install: those that images hold, and the
// command line tool, which krew brings.
func shipped() []string {
	folders := []string{"cmd/drover"}
	for _, program := range images.Programs {
		folders = append(append(folders, program.Package), program.Beside...)
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// judge finds the licence of each module, and names all that have none or one that is not allowed.
func judge(modules []*linkedModule, licenceOf func(path, version string) (string, error)) error {
	var wrong []error
	for _, m := range modules {
		id, err := licenceOf(m.Path, m.Version)
		if err == nil {
			err = licence.Allowed(id)
			if err != nil {
				err = fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
			}
		}
		if err != nil {
			wrong = append(wrong, err)
		}
		m.Licence = id
	}
	return errors.Join(wrong...)
}
