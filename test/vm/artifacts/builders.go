// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// debianSuite is the release that the builders' packages are from: that of the kernels' compiler.
const debianSuite = "bookworm"

// toolchainPackages compile kernel modules: what a kernel's own build system calls.
var toolchainPackages = []string{
	"bc", "binutils", "coreutils", "dash", "diffutils", "findutils", "gcc-12", "grep", "kmod", "libc6-dev", "libelf1", "make", "mawk", "patch",
	"pahole", "perl-base",
	"sed", "xz-utils", "zstd",
}

// toolchainLinks are made by the packages' installation, which does not happen.
var toolchainLinks = map[string]string{"usr/bin/awk": "mawk", "usr/bin/gcc": "gcc-12", "usr/bin/cc": "gcc-12"}

// leftOut begins the paths of what neither compiles kernel modules nor builds images:
// documentation, link time optimization, sanitizers, static libraries for programs, network
// plugins; and devices, which cannot be in an image's layer.
var leftOut = []string{
	"dev", "boot", "usr/share/doc", "usr/share/gcc", "usr/share/i18n", "usr/share/info", "usr/share/locale", "usr/share/man", "usr/share/perl",
	"usr/share/zoneinfo", "usr/bin/perl5", "usr/lib/cni", "usr/lib/gcc/x86_64-linux-gnu/12/lto1", "usr/lib/gcc/x86_64-linux-gnu/12/libasan",
	"usr/lib/gcc/x86_64-linux-gnu/12/liblsan", "usr/lib/gcc/x86_64-linux-gnu/12/libtsan", "usr/lib/gcc/x86_64-linux-gnu/12/libubsan",
	"usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/gprofng", "usr/lib/x86_64-linux-gnu/libasan",
	"usr/lib/x86_64-linux-gnu/libgprofng",
	"usr/lib/x86_64-linux-gnu/libc.a", "usr/lib/x86_64-linux-gnu/libm-", "usr/lib/x86_64-linux-gnu/libmvec.a",
	"usr/lib/x86_64-linux-gnu/liblsan", "usr/lib/x86_64-linux-gnu/libtsan", "usr/lib/x86_64-linux-gnu/libubsan",
	"usr/lib/x86_64-linux-gnu/perl/",
	"usr/bin/x86_64-linux-gnu-dwp", "usr/bin/x86_64-linux-gnu-gcov", "usr/bin/x86_64-linux-gnu-gp", "usr/bin/x86_64-linux-gnu-ld.gold",
	"usr/bin/x86_64-linux-gnu-lto-dump", "var/cache", "var/lib/apt", "var/lib/dpkg",
}

// buildahPackages build images from Dockerfiles.
var buildahPackages = []string{"buildah", "ca-certificates", "coreutils", "dash", "uidmap"}

// Toolchain is the root file system, as an archive, of an image with a compiler for kernel modules.
// The headers of one kernel, which are mounted at /headers, are also where many sources look for
// them.
func (c *Cache) Toolchain(ctx context.Context, release string) (string, error) {
	links := maps.Clone(toolchainLinks)
	links["lib/modules/"+release+"/build"] = "/headers"
	return c.debianRoot(ctx, "toolchain", toolchainPackages, links)
}

// Buildah is the root file system, as an archive, of an image with Buildah.
func (c *Cache) Buildah(ctx context.Context) (string, error) {
	return c.debianRoot(ctx, "buildah", buildahPackages, nil)
}

// debianRoot unpacks packages and what they depend on, and runs none of their scripts. What is not
// needed is left out of the archive here: mmdebstrap runs no hooks where it only unpacks, and a
// virtual node takes a second for each 3 MB of an image.
func (c *Cache) debianRoot(ctx context.Context, name string, packages []string, links map[string]string) (string, error) {
	if err := ensurePackages(ctx, "mmdebstrap"); err != nil {
		return "", err
	}
	inputs := append([]string{"4", debianSuite, fmt.Sprint(links), fmt.Sprint(leftOut)}, packages...)
	dir, err := c.Entry(ctx, "builder-"+name, inputs, func(ctx context.Context, dir string) error {
		whole := filepath.Join(dir, "whole.tar")
		args := []string{"--quiet", "--variant=extract", "--include=" + strings.Join(packages, ","), debianSuite, whole}
		if _, err := (command{name: "mmdebstrap", args: args, env: []string{"SOURCE_DATE_EPOCH=0"}}).run(ctx); err != nil {
			return fmt.Errorf("unpack the packages of %s: %w", name, err)
		}
		if err := trim(whole, filepath.Join(dir, "root.tar"), links); err != nil {
			return fmt.Errorf("make the root file system of %s: %w", name, err)
		}
		return os.Remove(whole)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "root.tar"), nil
}

// trim copies an archive without what is not needed, and adds links and the files in which programs
// look up who they are.
func trim(from, to string, links map[string]string) (err error) {
	whole, err := os.Open(from)
	if err != nil {
		return err
	}
	made, err := os.Create(to)
	if err != nil {
		return errors.Join(err, whole.Close())
	}
	defer func() { err = errors.Join(err, whole.Close(), made.Close()) }()
	out := tar.NewWriter(made)
	for archive := tar.NewReader(whole); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		file := path.Clean(header.Name)
		_, replaced := links[file]
		if replaced || slices.ContainsFunc(leftOut, func(prefix string) bool { return strings.HasPrefix(file, prefix) }) {
			continue
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(out, archive); err != nil {
			return err
		}
	}
	for _, link := range slices.Sorted(maps.Keys(links)) {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "./" + link, Linkname: links[link], Mode: 0o777}); err != nil {
			return err
		}
	}
	for file, text := range map[string]string{"./etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "./etc/group": "root:x:0:\n"} {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return out.Close()
}
