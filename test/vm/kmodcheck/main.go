// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command kmodcheck compiles all sample kernel modules for every kernel that virtual nodes run,
// with the kernel's further warnings and every warning an error, and reads what came out. It also
// runs the step of samples/kmods/Dockerfile that compiles. It ends with one line RESULT.
// BREAK=license compiles sources without a licence that the kernel knows, so that the result is
// red.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/kmodbuild"
)

// strict are make's arguments for warnings as errors.
var strict = []string{"W=1", "KCFLAGS=-Werror"}

// expected are the modules of samples/kmods, and their parameters. One that is missing has not been
// compiled.
var expected = map[string][]string{
	"drover_sample":           {"devices", "greeting", "magic"},
	"drover_sample_dep":       nil,
	"drover_sample_user":      nil,
	"he_sample_kernel_module": nil,
	"ptemplate_char_dev":      {"buffersize", "default_msg", "max_dev"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kmodcheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cache, err := artifacts.Open("")
	if err != nil {
		return err
	}
	if err := artifacts.EnsurePackages(ctx); err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(cache.Repository(), "samples", "kmods", "*", "Kbuild"))
	if err != nil {
		return fmt.Errorf("look for sources: %w", err)
	}
	var failed []error
	kernels := []string{}
	for _, series := range artifacts.AllSeries {
		kernel, err := cache.Kernel(ctx, series)
		if err != nil {
			return err
		}
		kernels = append(kernels, kernel.Release)
		built := map[string]string{}
		for _, source := range sources {
			modules, err := build(ctx, cache, kernel, filepath.Dir(source))
			failed = append(failed, err)
			maps.Copy(built, modules)
			if series == artifacts.Linux61 { // of the Debian that the Dockerfile begins with
				failed = append(failed, byDockerfile(ctx, cache, kernel, filepath.Dir(source)))
			}
		}
		failed = append(failed, check(kernel.Release, built))
	}
	err = errors.Join(failed...)
	line, marshalErr := json.Marshal(map[string]any{"modules": len(expected), "kernels": kernels, "ok": err == nil})
	if marshalErr != nil {
		return fmt.Errorf("print the result: %w", marshalErr)
	}
	fmt.Printf("RESULT %s\n", line)
	return err
}

// build compiles one folder, or what BREAK makes of it.
func build(ctx context.Context, cache *artifacts.Cache, kernel artifacts.Kernel, source string) (map[string]string, error) {
	if os.Getenv("BREAK") != "license" {
		return kmodbuild.Build(ctx, cache, kernel, source, strict...)
	}
	dir, err := os.MkdirTemp("", "kmodcheck")
	if err != nil {
		return nil, fmt.Errorf("folder for broken sources: %w", err)
	}
	broken := filepath.Join(dir, filepath.Base(source))
	if err := os.CopyFS(broken, os.DirFS(source)); err != nil {
		return nil, fmt.Errorf("copy %s: %w", source, err)
	}
	files, err := filepath.Glob(filepath.Join(broken, "*.c"))
	if err != nil {
		return nil, fmt.Errorf("look for sources: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a source: %w", err)
		}
		content = bytes.ReplaceAll(content, []byte(`MODULE_LICENSE("GPL")`), []byte(`MODULE_LICENSE("Apache 2.0")`))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return nil, fmt.Errorf("write a source: %w", err)
		}
	}
	modules, err := kmodbuild.Build(ctx, cache, kernel, broken, strict...)
	return modules, errors.Join(err, os.RemoveAll(dir))
}

// check reads the files, by module name, and compares them with what must be there.
func check(release string, built map[string]string) error {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		path, ok := built[name]
		if !ok {
			failed = append(failed, fmt.Errorf("%s: no %s came out", release, name))
			continue
		}
		info, err := kmod.ReadFile(os.DirFS(filepath.Dir(path)), filepath.Base(path))
		if err != nil {
			failed = append(failed, err)
			continue
		}
		var parameters []string
		for _, p := range info.Params {
			parameters = append(parameters, p.Name)
		}
		slices.Sort(parameters)
		if !slices.Equal(parameters, expected[name]) {
			failed = append(failed, fmt.Errorf("%s: %s has the parameters %v instead of %v", release, name, parameters, expected[name]))
		}
		// Anything else taints the kernel and gets none of its GPL symbols.
		if info.License != "GPL" {
			failed = append(failed, fmt.Errorf("%s: the licence of %s is %q instead of GPL", release, name, info.License))
		}
		if info.Version == "" || info.Name != name {
			failed = append(failed, fmt.Errorf("%s: %s calls itself %q, version %q", release, name, info.Name, info.Version))
		}
	}
	return errors.Join(failed...)
}
