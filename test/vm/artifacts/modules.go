// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unneeded are subtrees of a kernel's modules that no node of a test has
// hardware for, and that make its root larger. What a remaining module depends
// on stays all the same. Cache.AllModules keeps them.
var unneeded = []string{
	"kernel/sound/",
	"kernel/drivers/comedi/",
	"kernel/drivers/gpu/",
	"kernel/drivers/hwmon/",
	"kernel/drivers/iio/",
	"kernel/drivers/infiniband/",
	"kernel/drivers/isdn/",
	"kernel/drivers/mtd/",
	"kernel/drivers/net/ethernet/",
	"kernel/drivers/net/wireless/",
	"kernel/drivers/platform/",
	"kernel/drivers/scsi/",
	"kernel/drivers/staging/",
	"kernel/fs/btrfs/",
	"kernel/fs/nfs/",
	"kernel/fs/ocfs2/",
	"kernel/fs/smb/",
	"kernel/fs/xfs/",
}

// installModules puts a kernel's modules below root, without those a node
// cannot need, and indexes what is there.
func installModules(ctx context.Context, kernel Kernel, root string, without []string) error {
	target := filepath.Join(root, "lib", "modules", kernel.Release)
	dependencies, err := readModulesDep(filepath.Join(kernel.Modules(), "modules.dep"))
	if err != nil {
		return err
	}
	paths := []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"}
	for _, name := range append(paths, wantedModules(dependencies, without)...) {
		if err := linkOrCopy(filepath.Join(kernel.Modules(), name), filepath.Join(target, name)); err != nil {
			return err
		}
	}
	if _, err := (command{name: "depmod", args: []string{"-b", root, kernel.Release}}).run(ctx); err != nil {
		return fmt.Errorf("index the modules: %w", err)
	}
	return nil
}

// wantedModules are the modules outside of the subtrees, and all they depend on.
func wantedModules(dependencies map[string][]string, without []string) []string {
	wanted := map[string]bool{}
	var paths []string
	keep := func(path string) {
		if !wanted[path] {
			wanted[path] = true
			paths = append(paths, path)
		}
	}
	for path, needs := range dependencies {
		if isBelow(path, without) {
			continue
		}
		keep(path)
		// modules.dep lists indirect dependencies too.
		for _, need := range needs {
			keep(need)
		}
	}
	return paths
}

func isBelow(path string, subtrees []string) bool {
	for _, prefix := range subtrees {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// readModulesDep reads modules.dep: per module all it needs, as paths.
func readModulesDep(path string) (map[string][]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open modules.dep: %w", err)
	}
	defer func() { _ = file.Close() }()
	dependencies := map[string][]string{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		module, needs, found := strings.Cut(scanner.Text(), ":")
		if !found {
			return nil, fmt.Errorf("%s: line without a colon: %q", path, scanner.Text())
		}
		dependencies[module] = strings.Fields(needs)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read modules.dep: %w", err)
	}
	return dependencies, nil
}

// bootModules are what the node itself needs: its disk, its network, layers of
// images, links of pods. They are loaded from the initial RAM disk,
// uncompressed, so that the guest's own tools need not know compression.
var bootModules = []string{"virtio_pci", "virtio_blk", "ext4", "virtio_net", "overlay", "veth"}

// BootModules returns the files of a kernel's modules, and of what they depend
// on, uncompressed, under names that sort in the order to load them. What is
// built in needs no file.
func BootModules(ctx context.Context, kernel Kernel, modules ...string) (map[string]File, error) {
	order, err := loadOrder(ctx, kernel, modules)
	if err != nil {
		return nil, err
	}
	files := map[string]File{}
	for i, path := range order {
		content, err := readModule(ctx, path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".xz")
		files[fmt.Sprintf("%02d-%s", i, name)] = File{Content: content}
	}
	return files, nil
}

// loadOrder returns the files of modules and their dependencies in the order
// to load them.
func loadOrder(ctx context.Context, kernel Kernel, modules []string) ([]string, error) {
	seen := map[string]bool{}
	var order []string
	for _, module := range modules {
		shown, err := command{name: "modprobe", args: []string{
			"-d", kernel.Root, "-S", kernel.Release, "-C", "/dev/null", "--show-depends", module}}.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("find what %s needs: %w", module, err)
		}
		for line := range strings.Lines(shown) {
			fields := strings.Fields(line)
			if len(fields) >= 2 && fields[0] == "insmod" && !seen[fields[1]] {
				seen[fields[1]] = true
				order = append(order, fields[1])
			}
		}
	}
	return order, nil
}

// readModule returns a module's plain content, whether its file is compressed
// or not.
func readModule(ctx context.Context, path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		return content, nil
	}
	content, err := command{name: "xz", args: []string{"-dc", path}}.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("unpack module: %w", err)
	}
	return []byte(content), nil
}

// linkOrCopy makes target the same file as source, or a copy where a link is
// not possible.
func linkOrCopy(source, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if linkErr := os.Link(source, target); linkErr != nil {
		content, err := os.ReadFile(source)
		if err != nil {
			return errors.Join(linkErr, err)
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return fmt.Errorf("copy file: %w", err)
		}
	}
	return nil
}
