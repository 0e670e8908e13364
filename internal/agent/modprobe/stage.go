// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/drover-project/drover/internal/agent/watchdog"
	"github.com/drover-project/drover/internal/shared/kmod"
)

const (
	index     = "modules.dep.bin" // what modprobe reads dependencies from; depmod makes it
	hostDir   = "host"            // the link to the host's modules that images have which were indexed with them
	orderFile = "modprobe.d/softdep.conf"

	depmodDeadline = time.Minute // of a program that reads and writes files only: it may be killed
)

// Stage is the layout that one call of modprobe finds.
type Stage struct {
	Temp        string // the directory of the image's directory: the constant Temp, but for tests
	Kmod        string
	HostModules string // the host's lib/modules/<Release>
	Release     string
	// Packing lays out modules in one of Packings. modprobe unpacks what the kernel does not, and
	// hands it over by init_module(2), which SELinux allows where it denies finit_module(2) on the
	// laid-out files. Empty: as they are.
	Packing string
	// Watchdog is told of progress; may be nil.
	Watchdog *watchdog.Watchdog
}

// Content is what to lay out.
type Content struct {
	Dir       string   // the image's directory (modprobe.dirName)
	Image     fs.FS    // the image's lib/modules/<Release>
	Modules   []string // that the command line names
	LoadOrder []string
}

// Root is the directory of an image's tree, for modprobe -d.
func (s Stage) Root(dir string) string { return filepath.Join(s.Temp, filepath.Clean("/"+dir)) }

func (s Stage) orderDir(dir string) string { return filepath.Join(s.Root(dir), "drover") }

// Options is the value of MODPROBE_OPTIONS by which modprobe finds c's load order; "" without one.
func (s Stage) Options(c Content) string {
	if len(c.LoadOrder) == 0 {
		return ""
	}
	return "-C " + filepath.Join(s.orderDir(c.Dir), path.Dir(orderFile))
}

// Prepare copies the image's tree and adds what modprobe needs: the load order, and an index, made
// by depmod, if the image has none.
func (s Stage) Prepare(c Content) error {
	if err := s.Remove(c.Dir); err != nil {
		return err
	}
	err := s.prepare(c)
	if err != nil {
		return errors.Join(fmt.Errorf("lay out the image's modules for modprobe: %w", err), s.Remove(c.Dir))
	}
	return nil
}

// Remove removes the layout.
func (s Stage) Remove(dir string) error {
	if err := errors.Join(os.RemoveAll(filepath.Join(s.Root(dir), "lib", "modules")), os.RemoveAll(s.orderDir(dir))); err != nil {
		return fmt.Errorf("clear the layout for modprobe: %w", err)
	}
	return nil
}

func (s Stage) prepare(c Content) error {
	target := filepath.Join(s.Root(c.Dir), "lib", "modules", s.Release)
	copyOne := copyFile
	if s.Packing != "" {
		copyOne = s.packFile
	}
	told := func(target string, from fs.FS, name string) error {
		s.Watchdog.Alive()
		return copyOne(target, from, name)
	}
	if err := copyTree(target, c.Image, told); err != nil {
		return err
	}
	if len(c.LoadOrder) > 0 {
		if err := writeFile(filepath.Join(s.orderDir(c.Dir), orderFile), strings.NewReader(softdeps(c.LoadOrder))); err != nil {
			return err
		}
	}
	_, err := fs.Stat(c.Image, index)
	if err == nil && s.Packing == "" { // else it names other files
		return link(s.HostModules, filepath.Join(target, hostDir)) // deliveries carry no links, and it may need this one
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the image's index: %w", err)
	}
	if err := s.addHosts(target, c); err != nil {
		return err
	}
	return s.depmod(s.Root(c.Dir))
}

// softdeps says that each module of the order needs the next one.
func softdeps(order []string) string {
	var b strings.Builder
	for i := range len(order) - 1 {
		fmt.Fprintf(&b, "softdep %s pre: %s\n", order[i], order[i+1])
	}
	return b.String()
}

// link makes a link to the host's modules, unless something has its name.
func link(to, name string) error {
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.Symlink(to, name)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link the host's modules: %w", err)
	}
	return nil
}

// addHosts links the modules of the host that the image's modules need, so that depmod does not
// read thousands, and copies the lists of built-in modules.
func (s Stage) addHosts(target string, c Content) error {
	image, err := kmod.NewTree(c.Image)
	if err != nil {
		return err
	}
	hostFS := os.DirFS(s.HostModules)
	host, err := kmod.NewHostTree(hostFS)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo"} {
		err := copyFile(target, hostFS, name) // the image's own come first
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range append(image.Names(), c.Modules...) {
		steps, err := kmod.Resolve(kmod.Want{Modules: []string{name}, LoadOrder: c.LoadOrder}, image, host)
		if err != nil {
			continue // modprobe says so if it is asked for this one
		}
		for _, step := range steps {
			if step.From != kmod.Host {
				continue
			}
			if err := link(filepath.Join(s.HostModules, step.Path), filepath.Join(target, hostDir, step.Path)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s Stage) depmod(root string) error {
	ctx, cancel := context.WithTimeout(context.Background(), depmodDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Kmod)
	cmd.Args = []string{"depmod", "-b", root, s.Release}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	s.Watchdog.Alive()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, clip(said.String()))
	}
	return nil
}

func copyTree(target string, image fs.FS, copyOne func(string, fs.FS, string) error) error {
	err := fs.WalkDir(image, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(target, name), 0o755)
		}
		return copyOne(target, image, name)
	})
	if err != nil {
		return fmt.Errorf("copy the image's modules: %w", err)
	}
	return nil
}

func copyFile(target string, from fs.FS, name string) error {
	file, err := from.Open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = file.Close() }() // only read from
	return writeFile(filepath.Join(target, name), file)
}

// Packings are what Debian's kmod unpacks, with the suffix of each; it knows no gzip.
var Packings = map[string]string{"zstd": ".zst", "xz": ".xz"}

func newPacker(packing string, out io.Writer) (packer io.WriteCloser, err error) {
	switch packing {
	case "zstd":
		packer, err = zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	case "xz":
		packer, err = xz.NewWriter(out)
	default:
		err = errors.New("no such packing")
	}
	if err != nil {
		return nil, fmt.Errorf("pack by %q: %w", packing, err)
	}
	return packer, nil
}

// packFile copies a module packed, however it was before, and anything else as it is.
func (s Stage) packFile(target string, from fs.FS, name string) error {
	if _, ok := kmod.ModuleName(name); !ok {
		return copyFile(target, from, name)
	}
	content, err := fs.ReadFile(from, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if content, err = kmod.Decompress(content); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var packed bytes.Buffer
	packer, err := newPacker(s.Packing, &packed)
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	_, err = io.Copy(packer, s.Watchdog.Reader(bytes.NewReader(content)))
	if err := errors.Join(err, packer.Close()); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	plain := name[:strings.LastIndex(name, ".ko")+len(".ko")]
	return writeFile(filepath.Join(target, plain+Packings[s.Packing]), &packed)
}

func writeFile(name string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
