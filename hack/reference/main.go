// SPDX-License-Identifier: Apache-2.0

// Command reference writes the pages docs/reference/api, a page for each version of each kind,
// docs/reference/flags.md and docs/reference/security.md. They are made of the
// CustomResourceDefinitions in config, of what the programs in cmd say about their flags, and of
// roles, bindings and pods. It fails if something has no description.
//
// With -list, it writes nothing, and prints what exists as JSON instead: the paths of all fields,
// all flags, reasons and metrics. The test of the site compares that with what the pages list.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-project/drover/hack/reference/security"
)

func main() {
	list := flag.Bool("list", false, "print what exists, and write nothing")
	programs := flag.String("programs", "", "folder with the compiled programs; without it, they are compiled into .cache/reference")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", *programs, *list)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, programs string, list bool) error {
	kinds, err := readKinds(root)
	if err != nil {
		return err
	}
	commands, err := readPrograms(ctx, root, programs)
	if err != nil {
		return err
	}
	if list {
		all, err := everything(root, kinds, commands)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	pages, undocumented, err := pagesOf(kinds)
	if err != nil {
		return err
	}
	flags, more := flagsPage(commands)
	rights, err := security.Page(root)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(root, "docs", "reference"), pages, map[string]string{"flags.md": flags, "security.md": rights}); err != nil {
		return err
	}
	if undocumented = append(undocumented, more...); len(undocumented) > 0 {
		return errors.New("no description: " + strings.Join(undocumented, ", "))
	}
	return nil
}

// write replaces the generated pages.
func write(dir string, pages, single map[string]string) error {
	api := filepath.Join(dir, "api")
	if err := errors.Join(os.RemoveAll(api), os.MkdirAll(api, 0o755)); err != nil {
		return fmt.Errorf("make the folder of the kinds' pages: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if err := os.WriteFile(filepath.Join(api, name), []byte(pages[name]), 0o644); err != nil {
			return fmt.Errorf("write a page: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(single)) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(single[name]), 0o644); err != nil {
			return fmt.Errorf("write a page: %w", err)
		}
	}
	return nil
}
