// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/shared/imagefs"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// maxFetched bounds the bytes of the modules that are taken out of an image.
const maxFetched = 4 << 30

// Look examines an image.
func Look(ctx context.Context, image v1.Image, w Wish) (_ []Finding, err error) {
	folder, err := os.MkdirTemp("", "drover-lint-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	o := repack.Options{Dir: folder, Limits: repack.DefaultLimits()}
	o.Limits.Changed = maxFetched
	root, err := repack.Read(ctx, image, o, w.files)
	if err != nil {
		return nil, err
	}
	return Examine(root, w)
}

// files are those of an image that [Examine] opens, without links: the kernel's modules and
// indexes. It says itself what is wrong with links.
func (w *Wish) files(image fs.FS) ([]string, error) {
	root := imagefs.New(image)
	dir, err := w.dir(root)
	var found []string
	if err == nil {
		err = root.Files(dir, func(name string) error {
			if _, ok := kmod.ModuleName(name); !ok && !strings.HasPrefix(path.Base(name), "modules.") {
				return nil
			}
			at, err := root.Resolve(name)
			found = append(found, at)
			return err
		})
	}
	if _, ok := errors.AsType[*imagefs.LinkError](err); ok || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return found, err
}
