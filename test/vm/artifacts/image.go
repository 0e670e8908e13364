// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// busybox is where Debian's busybox-static puts its program.
const busybox = "/bin/busybox"

// rootSize is the size of a node's disk, bytes; the file is sparse.
const rootSize = 6 << 30

//go:embed guest
var guestFiles embed.FS

// emptyFolders of the root file system.
var emptyFolders = []string{
	"dev", "etc/cni/net.d", "etc/containerd/certs.d/_default", "etc/kubernetes/manifests", "etc/node", "mnt", "proc", "root", "run",
	"sys", "tmp", "usr/bin", "usr/libexec/kubernetes/kubelet-plugins/volume/exec", "usr/sbin", "var/lib/containerd",
	"var/lib/kubelet", "var/log/containers", "var/log/pods",
}

// Images are the files a node's machine starts from.
type Images struct {
	// Root is the raw ext4 image of the root file system, with the modules of
	// every kernel. It is shared: a machine writes to an overlay.
	Root string
	// Kernels are the kernels by series.
	Kernels map[Series]Kernel
	// Initrds are gzipped archives by series, to be followed by the node's own.
	Initrds map[Series]string
	// Pause is the program of the sandbox image registry.test/pause:1.
	Pause string
}

// Images makes all a node needs, or finds it in the cache.
func (c *Cache) Images(ctx context.Context) (*Images, error) {
	if err := EnsurePackages(ctx); err != nil {
		return nil, err
	}
	images := &Images{Kernels: map[Series]Kernel{}, Initrds: map[Series]string{}}
	// Unpacking and compiling do not stand in each other's way.
	fetched := make(chan error, 1)
	go func() { fetched <- c.fetchKernels(ctx, images) }()
	binaries, err := c.Binaries(ctx)
	if fetchErr := <-fetched; fetchErr != nil {
		return nil, fetchErr
	}
	if err != nil {
		return nil, err
	}
	images.Pause = binaries["pause"]
	if images.Root, err = c.rootImage(ctx, images.Kernels, binaries); err != nil {
		return nil, err
	}
	for series, kernel := range images.Kernels {
		if images.Initrds[series], err = c.initrd(ctx, kernel); err != nil {
			return nil, err
		}
	}
	return images, nil
}

func (c *Cache) fetchKernels(ctx context.Context, images *Images) error {
	for _, series := range AllSeries {
		kernel, err := c.Kernel(ctx, series)
		if err != nil {
			return err
		}
		images.Kernels[series] = kernel
	}
	return nil
}

func (c *Cache) rootImage(ctx context.Context, kernels map[Series]Kernel, binaries map[string]string) (string, error) {
	inputs, err := guestInputs()
	if err != nil {
		return "", err
	}
	inputs = append(inputs, emptyFolders...)
	without := unneeded
	if c.AllModules {
		without = nil
	}
	inputs = append(inputs, without...)
	inputs = append(inputs, fmt.Sprint(rootSize))
	for _, series := range AllSeries {
		inputs = append(inputs, kernels[series].Root)
	}
	kubelet, err := Digest(binaries["kubelet"])
	if err != nil {
		return "", err
	}
	inputs = append(inputs, kubelet)
	for _, set := range binarySets {
		inputs = append(inputs, filepath.Base(filepath.Dir(binaries[filepath.Base(set.packages[0])])))
	}
	dir, err := c.Entry(ctx, "root", inputs, func(ctx context.Context, dir string) error {
		return makeRoot(ctx, dir, kernels, binaries, without, func(string) error { return nil })
	})
	return filepath.Join(dir, "root.img"), err
}

// makeRoot makes root.img in a folder, after a change of its tree.
func makeRoot(ctx context.Context, dir string, kernels map[Series]Kernel, binaries map[string]string, without []string,
	change func(tree string) error) error {
	tree := filepath.Join(dir, "tree")
	if err := rootTree(ctx, tree, binaries); err != nil {
		return err
	}
	for _, kernel := range kernels {
		if err := installModules(ctx, kernel, tree, without); err != nil {
			return err
		}
	}
	if err := change(tree); err != nil {
		return err
	}
	if err := makeFileSystem(ctx, tree, filepath.Join(dir, "root.img")); err != nil {
		return err
	}
	if err := os.RemoveAll(tree); err != nil {
		return fmt.Errorf("remove the tree: %w", err)
	}
	return nil
}

// ChangedRoot makes all that a node needs once more, with a root file system that somebody changes
// before it becomes an image. It is kept in the folder alone.
func (c *Cache) ChangedRoot(ctx context.Context, images *Images, dir string, change func(tree string) error) (*Images, error) {
	binaries, err := c.Binaries(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder for the root file system: %w", err)
	}
	if err := makeRoot(ctx, dir, images.Kernels, binaries, unneeded, change); err != nil {
		return nil, err
	}
	changed := *images
	changed.Root = filepath.Join(dir, "root.img")
	return &changed, nil
}

// RootFolder makes the root file system in a folder, without kernel modules.
func (c *Cache) RootFolder(ctx context.Context, dir string) error {
	binaries, err := c.Binaries(ctx)
	if err != nil {
		return err
	}
	return rootTree(ctx, dir, binaries)
}

// rootTree fills the folder of the root file system, kernel modules excepted.
func rootTree(ctx context.Context, tree string, binaries map[string]string) error {
	for _, folder := range append([]string{"bin", "sbin"}, emptyFolders...) {
		if err := os.MkdirAll(filepath.Join(tree, folder), 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := os.Symlink("../run", filepath.Join(tree, "var", "run")); err != nil {
		return fmt.Errorf("link /var/run: %w", err)
	}
	if err := installBusybox(ctx, tree); err != nil {
		return err
	}
	targets := map[string]string{"host-local": "opt/cni/bin", "loopback": "opt/cni/bin", "ptp": "opt/cni/bin"}
	for name, path := range binaries {
		folder, special := targets[name]
		if !special {
			folder = "usr/local/bin"
		}
		if err := linkOrCopy(path, filepath.Join(tree, folder, name)); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\n",
		"etc/group":       "root:x:0:\n",
		"etc/resolv.conf": "",
		"etc/fstab":       "",
		"etc/os-release":  "ID=vmnode\nPRETTY_NAME=\"virtual test node\"\n",
	} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	for source, target := range map[string]string{
		"init": "sbin/init", "native-init": "sbin/native-init", "console": "usr/local/sbin/console",
		"containerd.toml": "etc/containerd/config.toml",
	} {
		if err := installGuestFile(source, filepath.Join(tree, target)); err != nil {
			return err
		}
	}
	return nil
}

func installGuestFile(source, target string) error {
	content, err := guestFiles.ReadFile("guest/" + source)
	if err != nil {
		return fmt.Errorf("read guest file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(target, content, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", target, err)
	}
	return nil
}

func installBusybox(ctx context.Context, tree string) error {
	if err := linkOrCopy(busybox, filepath.Join(tree, "bin", "busybox")); err != nil {
		return err
	}
	applets, err := command{name: busybox, args: []string{"--list"}}.run(ctx)
	if err != nil {
		return fmt.Errorf("list busybox's programs: %w", err)
	}
	for _, applet := range strings.Fields(applets) {
		// It lists itself; a link to itself would be in the way.
		if applet == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(tree, "bin", applet)); err != nil {
			return fmt.Errorf("link %s: %w", applet, err)
		}
	}
	return os.Chmod(filepath.Join(tree, "bin", "busybox"), 0o755)
}

// makeFileSystem writes a folder as an ext4 image, without mounting anything.
// It has a journal: tests cut the power.
func makeFileSystem(ctx context.Context, tree, image string) error {
	file, err := os.Create(image)
	if err != nil {
		return fmt.Errorf("create image: %w", err)
	}
	if err := file.Truncate(rootSize); err != nil {
		return fmt.Errorf("size image: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("close image: %w", err)
	}
	mkfs := command{name: "mkfs.ext4", args: []string{"-q", "-F", "-m", "0", "-J", "size=16",
		"-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "-d", tree, image}, env: []string{"PATH=" + os.Getenv("PATH") + ":/sbin:/usr/sbin"}}
	if _, err := mkfs.run(ctx); err != nil {
		return fmt.Errorf("make the root file system: %w", err)
	}
	return nil
}

func (c *Cache) initrd(ctx context.Context, kernel Kernel) (string, error) {
	inputs, err := guestInputs()
	if err != nil {
		return "", err
	}
	inputs = append(inputs, kernel.Root)
	inputs = append(inputs, bootModules...)
	dir, err := c.Entry(ctx, "initrd-"+string(kernel.Series), inputs, func(ctx context.Context, dir string) error {
		files := map[string]File{"dev/": {}, "proc/": {}, "sys/": {}, "newroot/": {}, "overlay/": {}}
		for target, source := range map[string]string{"bin/busybox": busybox} {
			content, err := os.ReadFile(source)
			if err != nil {
				return fmt.Errorf("read %s: %w", source, err)
			}
			files[target] = File{Content: content, Mode: 0o755}
		}
		init, err := guestFiles.ReadFile("guest/initrd-init")
		if err != nil {
			return fmt.Errorf("read guest file: %w", err)
		}
		files["init"] = File{Content: init, Mode: 0o755}
		modules, err := BootModules(ctx, kernel, bootModules...)
		if err != nil {
			return err
		}
		for name, file := range modules {
			files["modules/"+name] = file
		}
		return writeGzippedCPIO(filepath.Join(dir, "initrd.gz"), files)
	})
	return filepath.Join(dir, "initrd.gz"), err
}

// writeGzippedCPIO writes the archive and pads it to 4 bytes, so that another
// archive may follow.
func writeGzippedCPIO(path string, files map[string]File) error {
	var out bytes.Buffer
	packer := gzip.NewWriter(&out)
	packer.ModTime = time.Time{}
	if err := WriteCPIO(packer, files); err != nil {
		return err
	}
	if err := packer.Close(); err != nil {
		return fmt.Errorf("pack archive: %w", err)
	}
	pad(&out)
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// guestInputs are what all images depend on: the guest's scripts and busybox.
func guestInputs() ([]string, error) {
	program, err := Digest(busybox)
	if err != nil {
		return nil, err
	}
	inputs := []string{program}
	entries, err := guestFiles.ReadDir("guest")
	if err != nil {
		return nil, fmt.Errorf("list guest files: %w", err)
	}
	for _, entry := range entries {
		content, err := guestFiles.ReadFile("guest/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read guest file: %w", err)
		}
		inputs = append(inputs, entry.Name(), string(content))
	}
	return inputs, nil
}
