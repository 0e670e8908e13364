// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/shared/imagefs"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/words"
)

const mostNamed = 10

const modulesDir = "lib/modules"

// usualDirs are where images have their lib/modules, for messages.
var usualDirs = []string{"", "opt", "usr"}

func choose(ctx context.Context, img image, o Options) ([]file, error) {
	dir, err := kernelDir(img, o)
	if err != nil {
		return nil, err
	}
	names, err := moduleFiles(ctx, img, dir, o)
	if err != nil {
		return nil, err
	}
	// The tree has the node's kernel version, with the "+" that the image may lack.
	to := within(modulesDir, o.Kernel)
	files := make([]file, 0, len(names))
	for _, name := range names {
		files = append(files, file{from: name, to: within(to, strings.TrimPrefix(name, dir+"/"))})
	}
	firmware, err := firmwareFiles(ctx, img, o)
	if err != nil {
		return nil, err
	}
	files = append(files, firmware...)
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.to, b.to) })
	files = slices.CompactFunc(files, func(a, b file) bool { return a.to == b.to })
	return files, check(files, o.MaxFiles)
}

// check finds names that the output's format does not allow, and too many of them.
func check(files []file, limit int) error {
	if len(files) > max(limit, 0) {
		return tooMany(path.Dir(files[0].from), limit)
	}
	for _, f := range files {
		if err := manifest.ValidPath(f.to); err != nil {
			return manifest.Failed(manifest.ReasonImageUnreadable, "file name in the image: %v", err)
		}
	}
	return nil
}

// kernelDir finds the kernel's directory in the image, its name with or without a trailing "+".
func kernelDir(img image, o Options) (string, error) {
	if o.Kernel == "" || strings.ContainsRune(o.Kernel, '/') || strings.HasPrefix(o.Kernel, ".") {
		return "", fmt.Errorf("kernel version %q is not a directory name", o.Kernel)
	}
	bare := strings.TrimSuffix(o.Kernel, "+")
	for _, kernel := range slices.Compact([]string{o.Kernel, bare, bare + "+"}) {
		dir := within(clean(o.DirName), modulesDir, kernel)
		ok, err := img.isDir(dir)
		if err != nil {
			return "", err
		}
		if ok {
			return dir, nil
		}
	}
	return "", manifest.Failed(manifest.ReasonImageUnreadable, "the image has no /%s: %s",
		within(clean(o.DirName), modulesDir, o.Kernel), present(img, o))
}

// present says what the image has instead of the kernel's directory.
func present(img image, o Options) string {
	if found := img.kernels(clean(o.DirName)); len(found) > 0 {
		return "it has kernels " + words.List(found, mostNamed) + "; build it for this kernel, or map this kernel to another image"
	}
	for _, dir := range usualDirs {
		if found := img.kernels(dir); dir != clean(o.DirName) && len(found) > 0 {
			return fmt.Sprintf("it has kernels %s below /%s; set dirName to /%s", words.List(found, mostNamed), within(dir, modulesDir), dir)
		}
	}
	return "it has no kernel modules; check dirName"
}

// moduleFiles are the needed files of the kernel's directory: modules with their dependencies and
// the indexes, or everything.
func moduleFiles(ctx context.Context, img image, dir string, o Options) ([]string, error) {
	if o.WholeTree {
		return img.files(ctx, dir, o.MaxFiles)
	}
	needed, err := closure(img, dir, o)
	if err != nil {
		return nil, err
	}
	names := slices.Concat(needed.Modules, needed.Indexes)
	for i := range names {
		names[i] = within(dir, names[i])
	}
	return names, nil
}

// closure is what the wanted modules need from the image. The host may have what the image lacks.
func closure(img image, dir string, o Options) (kmod.Files, error) {
	tree, err := fs.Sub(img.fs, dir)
	if err != nil {
		return kmod.Files{}, fmt.Errorf("export: %w", err)
	}
	index, err := kmod.NewTree(tree)
	if err != nil {
		return kmod.Files{}, unreadableBelow(dir, err)
	}
	needed, err := kmod.Closure(kmod.Want{Modules: []string{o.Module}, LoadOrder: o.LoadOrder}, index)
	var missing *kmod.NotFoundError
	switch {
	case errors.As(err, &missing):
		return kmod.Files{}, manifest.Failed(manifest.ReasonMissingDependency, "the image has no module %s in /%s; it has %s",
			missing.Module, dir, cmp.Or(words.List(index.Names(), mostNamed), "no modules"))
	case err != nil:
		return kmod.Files{}, unreadableBelow(dir, err)
	}
	return needed, nil
}

// unreadableBelow explains an error about something below dir, by the error's path if it has one.
func unreadableBelow(dir string, err error) error {
	var at *fs.PathError
	switch {
	case errors.Is(err, kmod.ErrTooLarge), errors.Is(err, imagefs.ErrTooMany):
		return manifest.Failed(manifest.ReasonImageTooLarge, "/%s: %v", dir, err)
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &at):
		return unreadable(within(dir, at.Path), fs.ErrPermission)
	default:
		return unreadable(dir, err)
	}
}

func firmwareFiles(ctx context.Context, img image, o Options) ([]file, error) {
	if o.FirmwarePath == "" {
		return nil, nil
	}
	dir := within(clean(o.FirmwarePath))
	ok, err := img.isDir(dir)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, manifest.Failed(manifest.ReasonImageUnreadable, "the image has no directory /%s (firmwarePath)", dir)
	}
	names, err := img.files(ctx, dir, o.MaxFiles)
	if err != nil {
		return nil, err
	}
	files := make([]file, 0, len(names))
	for _, name := range names {
		files = append(files, file{from: name, to: within(manifest.FirmwareDir, strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"))})
	}
	return files, nil
}
