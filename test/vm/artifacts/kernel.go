// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Series is a line of Debian's kernels for Debian 12.
type Series string

// The two series a node can boot. Both are Debian's full kernels, not those
// for clouds. Modules of 6.1 are plain files, those of 6.12 are compressed
// with xz.
const (
	Linux61  Series = "6.1"
	Linux612 Series = "6.12"
)

// AllSeries lists every series.
var AllSeries = []Series{Linux61, Linux612}

// metaPackages depend on the newest image of their series.
var metaPackages = map[Series]string{
	Linux61:  "linux-image-amd64",
	Linux612: "linux-image-6.12-amd64",
}

// Kernel is one unpacked kernel.
type Kernel struct {
	Series Series
	// Release is what uname -r says in the guest.
	Release string
	// Root is the folder the packages were unpacked to.
	Root string
}

// Image is the path of the kernel to boot.
func (k Kernel) Image() string { return filepath.Join(k.Root, "boot", "vmlinuz-"+k.Release) }

// Modules is the folder that is /lib/modules/RELEASE on a node, complete.
func (k Kernel) Modules() string { return filepath.Join(k.Root, "lib", "modules", k.Release) }

// Headers is the folder to compile modules against, for make -C.
func (k Kernel) Headers() string {
	return filepath.Join(k.Root, "usr", "src", "linux-headers-"+k.Release)
}

// Kernel returns the newest kernel of a series, and keeps to it: which one is
// the newest is asked once per cache.
func (c *Cache) Kernel(ctx context.Context, series Series) (Kernel, error) {
	meta, known := metaPackages[series]
	if !known {
		return Kernel{}, fmt.Errorf("no kernel series %q", series)
	}
	if runtime.GOARCH != "amd64" {
		return Kernel{}, errors.New("the virtual nodes are amd64 machines, made on amd64")
	}
	dir, err := c.Entry(ctx, "linux-"+string(series), []string{"1", meta}, func(ctx context.Context, dir string) error {
		return fetchKernel(ctx, dir, meta)
	})
	if err != nil {
		return Kernel{}, err
	}
	releases, err := os.ReadDir(filepath.Join(dir, "lib", "modules"))
	if err != nil {
		return Kernel{}, fmt.Errorf("find the kernel's release: %w", err)
	}
	if len(releases) != 1 {
		return Kernel{}, fmt.Errorf("%d kernels in %s instead of one", len(releases), dir)
	}
	return Kernel{Series: series, Release: releases[0].Name(), Root: dir}, nil
}

func fetchKernel(ctx context.Context, dir, meta string) error {
	var debian packages
	names, err := debian.dependencies(ctx, meta)
	if err != nil {
		if err := debian.update(ctx); err != nil {
			return err
		}
		if names, err = debian.dependencies(ctx, meta); err != nil {
			return err
		}
	}
	image := names[0]
	release, found := strings.CutPrefix(image, "linux-image-")
	if !found {
		return fmt.Errorf("%s depends on %s, not on a kernel image", meta, image)
	}
	headers := "linux-headers-" + release
	parts, err := debian.dependencies(ctx, headers)
	if err != nil {
		return err
	}
	wanted := []string{image, headers}
	for _, name := range parts {
		if strings.HasPrefix(name, "linux-headers-") || strings.HasPrefix(name, "linux-kbuild-") {
			wanted = append(wanted, name)
		}
	}
	if err := debian.unpack(ctx, dir, wanted...); err != nil {
		return err
	}
	if err := relocateHeaders(dir, release); err != nil {
		return err
	}
	// The packages leave this to their installation.
	if _, err := (command{name: "depmod", args: []string{"-b", dir, release}}).run(ctx); err != nil {
		return fmt.Errorf("index the modules: %w", err)
	}
	return nil
}

// relocateHeaders makes the header tree work outside of /usr/src. Only its
// Makefile holds an absolute path; everything else is relative already.
func relocateHeaders(dir, release string) error {
	makefile := filepath.Join(dir, "usr", "src", "linux-headers-"+release, "Makefile")
	content, err := os.ReadFile(makefile)
	if err != nil {
		return fmt.Errorf("read the headers' Makefile: %w", err)
	}
	target, found := strings.CutPrefix(strings.TrimSpace(string(content)), "include /usr/src/")
	if !found {
		return fmt.Errorf("unexpected Makefile of the headers: %q", content)
	}
	relative := "include $(dir $(realpath $(lastword $(MAKEFILE_LIST))))../" + target + "\n"
	if err := os.WriteFile(makefile, []byte(relative), 0o644); err != nil {
		return fmt.Errorf("write the headers' Makefile: %w", err)
	}
	return nil
}

// V4L2Loopback returns the source folder of Debian's v4l2loopback module, a
// third party's code that needs the in-tree module videodev.
func (c *Cache) V4L2Loopback(ctx context.Context) (string, error) {
	dir, err := c.Entry(ctx, "v4l2loopback", []string{"1"}, func(ctx context.Context, dir string) error {
		return packages{}.unpack(ctx, dir, "v4l2loopback-dkms")
	})
	if err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "usr", "src", "v4l2loopback-*"))
	if err != nil || len(sources) != 1 {
		return "", errors.Join(errors.New("the package holds no single source folder"), err)
	}
	return sources[0], nil
}

// SignFile returns the path of the kernel's own program to sign modules, sign-file, from Debian's
// package of a kernel's build tools. It needs openssl's library, which the package openssl brings.
func (c *Cache) SignFile(ctx context.Context) (string, error) {
	meta := "linux-headers-" + runtime.GOARCH // Debian calls the common ones as Go does
	dir, err := c.Entry(ctx, "sign-file", []string{"1", meta}, func(ctx context.Context, dir string) error {
		return fetchBuildTools(ctx, dir, meta)
	})
	if err != nil {
		return "", err
	}
	programs, err := filepath.Glob(filepath.Join(dir, "usr", "lib", "linux-kbuild-*", "scripts", "sign-file"))
	if err != nil || len(programs) != 1 {
		return "", errors.Join(errors.New("the package of the kernel's build tools holds no single sign-file"), err)
	}
	return programs[0], nil
}

// fetchBuildTools unpacks the linux-kbuild package that the newest headers depend on.
func fetchBuildTools(ctx context.Context, dir, meta string) error {
	var debian packages
	headers, err := debian.dependencies(ctx, meta)
	if err != nil {
		if err := debian.update(ctx); err != nil {
			return err
		}
		if headers, err = debian.dependencies(ctx, meta); err != nil {
			return err
		}
	}
	parts, err := debian.dependencies(ctx, headers[0])
	if err != nil {
		return err
	}
	for _, name := range parts {
		if strings.HasPrefix(name, "linux-kbuild-") {
			return debian.unpack(ctx, dir, name)
		}
	}
	return fmt.Errorf("%s depends on no package of build tools", headers[0])
}
