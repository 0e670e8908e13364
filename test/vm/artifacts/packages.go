// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"
)

// hostPackages are the Debian packages this tier needs on the host, and what
// each is for.
var hostPackages = []string{
	"busybox-static",  // the guest's userland
	"ca-certificates", // the Go module proxy
	"e2fsprogs",       // mkfs.ext4 -d
	"gcc",             // runc
	"gcc-12",          // kernel modules: the compiler the kernels were built with
	"kmod",            // depmod, modprobe --show-depends
	"libc6-dev",       // runc, linked statically
	"libelf1",         // objtool of the kernel's build tools
	"libseccomp-dev",  // runc
	"make",            // kernel modules
	"openssl",         // what sign-file is linked with
	"ovmf",            // UEFI firmware
	"pahole",          // BTF of kernel modules for Linux 6.12
	"pkg-config",      // runc finds libseccomp
	"qemu-system-x86", // the machine
	"qemu-utils",      // qemu-img
	"xfsprogs",        // mkfs.xfs
	"xz-utils",        // compressed kernel modules
}

// EnsurePackages installs the Debian packages that this tier needs and the host
// lacks. It does nothing, and needs no network, when all are there.
func EnsurePackages(ctx context.Context) error { return ensurePackages(ctx, hostPackages...) }

func ensurePackages(ctx context.Context, names ...string) error {
	var missing []string
	for _, name := range names {
		status, err := command{name: "dpkg-query", args: []string{"-W", "-f", "${db:Status-Status}", name}}.run(ctx)
		if err != nil || status != "installed" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("installing missing Debian packages needs root: %s", strings.Join(missing, " "))
	}
	klog.FromContext(ctx).Info("Installing Debian packages", "packages", missing)
	unlock, err := lock(filepath.Join(os.TempDir(), "drover-apt.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := (packages{}).update(ctx); err != nil {
		return err
	}
	install := append([]string{"-o", "DPkg::Lock::Timeout=300", "install", "-y", "-q", "--no-install-recommends"}, missing...)
	if _, err := (command{name: "apt-get", args: install, env: []string{"DEBIAN_FRONTEND=noninteractive"}}).run(ctx); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	return nil
}

// packages is a set of package lists: the machine's own as the zero value.
type packages struct {
	// env makes apt use other lists.
	env []string
}

func (p packages) update(ctx context.Context) error {
	if _, err := (command{name: "apt-get", args: []string{"-q", "update"}, env: p.env}).run(ctx); err != nil {
		return fmt.Errorf("update the package lists: %w", err)
	}
	return nil
}

// dependencies are the names in a package's Depends field, first alternatives
// only.
func (p packages) dependencies(ctx context.Context, name string) ([]string, error) {
	shown, err := command{name: "apt-cache", args: []string{"show", "--no-all-versions", name}, env: p.env}.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up package %s: %w", name, err)
	}
	names := dependsField(shown)
	if len(names) == 0 {
		return nil, fmt.Errorf("package %s has no dependencies in the package lists", name)
	}
	return names, nil
}

// dependsField reads the Depends field of one package record.
func dependsField(record string) []string {
	var names []string
	for line := range strings.Lines(record) {
		value, found := strings.CutPrefix(line, "Depends:")
		if !found {
			continue
		}
		for dependency := range strings.SplitSeq(value, ",") {
			first, _, _ := strings.Cut(dependency, "|")
			fields := strings.Fields(first)
			if len(fields) > 0 {
				names = append(names, fields[0])
			}
		}
	}
	return names
}

// unpack downloads Debian packages and unpacks them into dir, without installing
// anything.
func (p packages) unpack(ctx context.Context, dir string, names ...string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "debs-")
	if err != nil {
		return fmt.Errorf("make a download folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	files, err := p.fetch(ctx, work, names...)
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := (command{name: "dpkg", args: []string{"-x", file, dir}}).run(ctx); err != nil {
			return fmt.Errorf("unpack a package: %w", err)
		}
	}
	return nil
}

// fetch downloads Debian packages into dir, which has no others.
func (p packages) fetch(ctx context.Context, dir string, names ...string) ([]string, error) {
	download := command{dir: dir, name: "apt-get", args: append([]string{"-q", "download"}, names...), env: p.env}
	if _, err := download.run(ctx); err != nil {
		// The mirror drops old versions: stale lists name files that are gone.
		if err := p.update(ctx); err != nil {
			return nil, err
		}
		if _, err := download.run(ctx); err != nil {
			return nil, fmt.Errorf("download packages: %w", err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, fmt.Errorf("list downloaded packages: %w", err)
	}
	if len(files) != len(names) {
		return nil, errors.New("not every package arrived")
	}
	return files, nil
}
