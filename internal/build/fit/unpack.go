// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// maxUnpacked bounds what is taken out of an image.
const maxUnpacked = 4 << 30

// Look examines an image.
func Look(image v1.Image, w Wish) (_ []Finding, err error) {
	folder, err := os.MkdirTemp("", "drover-lint-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the image's content: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := unpack(image, root, w.Firmware); err != nil {
		return nil, err
	}
	return Examine(root.FS(), w)
}

// unpack writes the kernel modules and firmware of an image into a folder. Links stay within it.
func unpack(image v1.Image, to *os.Root, firmware string) (err error) {
	content := mutate.Extract(image)
	defer func() { err = errors.Join(err, content.Close()) }()
	left := int64(maxUnpacked)
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// A layer that could not be read shows only behind the archive's end.
			if _, err := io.Copy(io.Discard, content); err != nil {
				return fmt.Errorf("read the image's layers: %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the image's layers: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		switch {
		case header.Typeflag == tar.TypeSymlink:
			err = link(to, header.Linkname, name)
		case header.Typeflag == tar.TypeReg && matters(name, firmware):
			if left -= header.Size; left < 0 {
				return fmt.Errorf("the image's modules take more than %d bytes", int64(maxUnpacked))
			}
			err = write(to, name, archive)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
	}
}

func matters(name, firmware string) bool {
	firmware = strings.Trim(path.Clean("/"+firmware), "/")
	return strings.Contains("/"+name, "/lib/modules/") || firmware != "" && strings.HasPrefix(name, firmware+"/") ||
		strings.Contains("/"+name, "/firmware/")
}

func link(to *os.Root, target, name string) error {
	if strings.HasPrefix(target, "/") { // absolute within the image
		target = strings.Repeat("../", strings.Count(name, "/")) + strings.TrimPrefix(target, "/")
	}
	if err := to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err //nolint:wrapcheck // unpack does
	}
	if err := to.Symlink(target, name); !errors.Is(err, fs.ErrExist) {
		return err //nolint:wrapcheck // unpack does
	}
	return nil
}

func write(to *os.Root, name string, content io.Reader) error {
	if err := to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err //nolint:wrapcheck // unpack does
	}
	file, err := to.Create(name)
	if err != nil {
		return err //nolint:wrapcheck // unpack does
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
