// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
)

// compiles is how the step of a Dockerfile begins that makes the modules.
const compiles = "RUN make -C /src "

// byDockerfile runs the step of samples/kmods/Dockerfile that compiles, as it is written but for
// its folders, and looks at what the image would hold. The step before it fetches a compiler and
// headers, which are here.
func byDockerfile(ctx context.Context, cache *artifacts.Cache, kernel artifacts.Kernel, source string) (err error) {
	text, err := os.ReadFile(filepath.Join(cache.Repository(), "samples", "kmods", "Dockerfile"))
	if err != nil {
		return fmt.Errorf("read the Dockerfile: %w", err)
	}
	_, step, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "\n"+compiles)
	if !found {
		return fmt.Errorf("the Dockerfile has no step that begins with %q", compiles)
	}
	step, _, _ = strings.Cut(strings.TrimPrefix(compiles, "RUN ")+step, "\n")
	dir, err := os.MkdirTemp("", "kmodcheck")
	if err != nil {
		return fmt.Errorf("folder for the Dockerfile's step: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(source)); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	step = strings.NewReplacer("/usr/src/", filepath.Dir(kernel.Headers())+"/", "/src", dir+"/src", "/out", dir+"/out").Replace(step)
	shell := exec.CommandContext(ctx, "sh", "-c", step)
	shell.Env = append(os.Environ(), "LC_ALL=C", "KERNEL_FULL_VERSION="+kernel.Release)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	shell.Stdout, shell.Stderr = &output, &output
	if err := shell.Run(); err != nil {
		return fmt.Errorf("the Dockerfile's step for %s: %w:\n%s", source, err, output.String())
	}
	return delivered(filepath.Join(dir, "out"), kernel.Release, source)
}

// delivered checks that every module of a source is where an image has it.
func delivered(root, release, source string) error {
	sources, err := filepath.Glob(filepath.Join(source, "*.c"))
	if err != nil {
		return fmt.Errorf("look for sources: %w", err)
	}
	var missing []error
	for _, file := range sources {
		name := strings.TrimSuffix(filepath.Base(file), ".c") + ".ko"
		if _, err := os.Stat(filepath.Join(root, images.KmodPath(release, name))); err != nil {
			missing = append(missing, fmt.Errorf("an image by the Dockerfile lacks %s: %w", name, err))
		}
	}
	return errors.Join(missing...)
}
