// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// debianSuite is the release that the builders' packages are from: that of the kernels' compiler.
const debianSuite = "bookworm"

// toolchainPackages compile kernel modules: what a kernel's own build system calls.
var toolchainPackages = []string{
	"bc", "binutils", "coreutils", "dash", "findutils", "gcc-12", "grep", "libelf1", "make", "mawk", "perl-base", "sed", "xz-utils", "zstd",
}

// toolchainLinks are made by the packages' installation, which does not happen.
var toolchainLinks = map[string]string{"usr/bin/awk": "mawk", "usr/bin/gcc": "gcc-12", "usr/bin/cc": "gcc-12"}

// buildahPackages build images from Dockerfiles.
var buildahPackages = []string{"buildah", "ca-certificates", "coreutils", "dash", "uidmap"}

// Toolchain is the root file system, as an archive, of an image with a compiler for kernel modules.
func (c *Cache) Toolchain(ctx context.Context) (string, error) {
	return c.debianRoot(ctx, "toolchain", toolchainPackages, toolchainLinks)
}

// Buildah is the root file system, as an archive, of an image with Buildah.
func (c *Cache) Buildah(ctx context.Context) (string, error) {
	return c.debianRoot(ctx, "buildah", buildahPackages, nil)
}

// debianRoot unpacks packages and what they depend on, and runs none of their scripts.
func (c *Cache) debianRoot(ctx context.Context, name string, packages []string, links map[string]string) (string, error) {
	if err := ensurePackages(ctx, "mmdebstrap"); err != nil {
		return "", err
	}
	inputs := append([]string{"2", debianSuite, fmt.Sprint(links)}, packages...)
	dir, err := c.Entry(ctx, "builder-"+name, inputs, func(ctx context.Context, dir string) error {
		args := []string{"--quiet", "--variant=extract", "--include=" + strings.Join(packages, ",")}
		for link, target := range links {
			args = append(args, "--customize-hook=ln -sf "+target+` "$1"/`+link)
		}
		// Nothing of the sort is needed for compiling, and devices cannot be in an image's layer.
		for _, unneeded := range []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "dev"} {
			args = append(args, `--customize-hook=rm -rf "$1"/`+unneeded)
		}
		// Programs look up who they are.
		args = append(args, `--customize-hook=echo root:x:0:0:root:/root:/bin/sh >"$1"/etc/passwd`, `--customize-hook=echo root:x:0: >"$1"/etc/group`)
		root := filepath.Join(dir, "root.tar")
		if _, err := (command{name: "mmdebstrap", args: append(args, debianSuite, root), env: []string{"SOURCE_DATE_EPOCH=0"}}).run(ctx); err != nil {
			return fmt.Errorf("unpack the packages of %s: %w", name, err)
		}
		if _, err := os.Stat(root); err != nil {
			return fmt.Errorf("look at the archive: %w", err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "root.tar"), nil
}
