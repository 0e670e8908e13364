// SPDX-License-Identifier: Apache-2.0

// Package kmodbuild compiles kernel modules from source against an unpacked
// kernel's headers.
package kmodbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/drover-project/drover/test/vm/artifacts"
)

// Build compiles the modules in source, a folder with a Makefile or Kbuild
// file, for a kernel and returns the paths of the .ko files by module name
// with underscores. The source folder is not written to; the results stay in
// the cache until source, args or kernel change. Args are further arguments
// of make, such as "CONFIG_X=m".
func Build(ctx context.Context, cache *artifacts.Cache, kernel artifacts.Kernel, source string, args ...string) (map[string]string, error) {
	content, err := artifacts.Digest(source)
	if err != nil {
		return nil, err
	}
	inputs := append([]string{filepath.Base(kernel.Root), kernel.Release, content}, args...)
	name := "kmod-" + filepath.Base(source)
	dir, err := cache.Entry(ctx, name, inputs, func(ctx context.Context, dir string) error {
		if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(source)); err != nil {
			return fmt.Errorf("copy the source: %w", err)
		}
		return compile(ctx, kernel, filepath.Join(dir, "src"), args)
	})
	if err != nil {
		return nil, err
	}
	return find(filepath.Join(dir, "src"))
}

// compile runs the kernel's own build system on a folder.
func compile(ctx context.Context, kernel artifacts.Kernel, dir string, args []string) error {
	args = append([]string{"-s", "-C", kernel.Headers(), "M=" + dir}, args...)
	cmd := exec.CommandContext(ctx, "make", append(args, "modules")...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile against %s: %w:\n%s", kernel.Release, err, output.String())
	}
	return nil
}

func find(dir string) (map[string]string, error) {
	modules := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base, isModule := strings.CutSuffix(entry.Name(), ".ko"); isModule && entry.Type().IsRegular() {
			modules[strings.ReplaceAll(base, "-", "_")] = path
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for compiled modules: %w", err)
	}
	if len(modules) == 0 {
		return nil, errors.New("the source compiled to no module")
	}
	return modules, nil
}
