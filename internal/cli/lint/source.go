// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// variant is the image for one platform, or a folder that stands for an image's root.
type variant struct {
	platform string
	machine  string // the architecture in Go's words; empty when unknown
	image    v1.Image
	folder   string
}

// open reads a folder (an OCI layout or an image's root), a `docker save` archive, or a reference.
func open(ctx context.Context, image, platform string) ([]variant, error) {
	info, err := os.Stat(image)
	switch {
	case err == nil && info.IsDir():
		if _, err := os.Stat(filepath.Join(image, "oci-layout")); err != nil {
			return []variant{{platform: "folder " + image, folder: image}}, nil
		}
		index, err := layout.ImageIndexFromPath(image)
		if err != nil {
			return nil, fmt.Errorf("read the OCI layout %s: %w", image, err)
		}
		return fromIndex(index, platform)
	case err == nil:
		one, err := tarball.ImageFromPath(image, nil)
		if err != nil {
			return nil, fmt.Errorf("read the archive %s: %w", image, err)
		}
		return fromImage(one, platform)
	case strings.HasPrefix(image, "/") || strings.HasPrefix(image, "."):
		return nil, fmt.Errorf("open the image: %w", err)
	}
	return fromRegistry(ctx, image, platform)
}

// fromRegistry uses the credentials of docker or podman.
func fromRegistry(ctx context.Context, image, platform string) ([]variant, error) {
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("there is no file of that name, and as an image: %w", err)
	}
	found, err := remote.Get(reference, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, fmt.Errorf("get the image from its registry: %w", err)
	}
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return nil, fmt.Errorf("read the image's index: %w", err)
		}
		return fromIndex(index, platform)
	}
	one, err := found.Image()
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return fromImage(one, platform)
}

func fromImage(image v1.Image, platform string) ([]variant, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	return only([]variant{{platform: config.OS + "/" + config.Architecture, machine: config.Architecture, image: image}}, platform)
}

// fromIndex takes the images of all platforms, also of nested indexes.
func fromIndex(index v1.ImageIndex, platform string) ([]variant, error) {
	seen := 0
	all, err := variantsOf(index, &seen, 0)
	if err != nil {
		return nil, err
	}
	return only(all, platform)
}

const (
	deepest    = 3   // indexes in indexes
	mostImages = 100 // images of an index, and of all indexes in it together
)

func variantsOf(index v1.ImageIndex, seen *int, depth int) ([]variant, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the image's index: %w", err)
	}
	// A few small indexes can name a million images.
	if *seen += len(manifest.Manifests); *seen > mostImages || depth > deepest {
		return nil, fmt.Errorf("the image's index names more than %d images, or nests deeper than %d indexes", mostImages, deepest)
	}
	var all []variant
	for _, d := range manifest.Manifests {
		switch {
		case d.MediaType.IsIndex():
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, fmt.Errorf("read the image's index: %w", err)
			}
			more, err := variantsOf(inner, seen, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		case d.MediaType.IsImage() && (d.Platform == nil || d.Platform.OS == "linux" || d.Platform.OS == ""):
			image, err := index.Image(d.Digest)
			if err != nil {
				return nil, fmt.Errorf("read the image: %w", err)
			}
			more, err := fromImage(image, "")
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	return all, nil
}

type otherPlatformError struct {
	platform string
	has      []string
}

func (e *otherPlatformError) Error() string {
	return fmt.Sprintf("the image is not for %s, only for %s", e.platform, strings.Join(e.has, ", "))
}

func only(all []variant, platform string) ([]variant, error) {
	var kept []variant
	var names []string
	for _, v := range all {
		names = append(names, v.platform)
		if platform == "" || v.platform == platform {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 && platform != "" {
		return nil, &otherPlatformError{platform: platform, has: names}
	}
	if len(kept) == 0 {
		return nil, errors.New("the index names no image for Linux")
	}
	return kept, nil
}

// parseSymbols reads what a kernel exports: a Module.symvers (CRC, symbol, where, how) or a
// System.map (address, kind, symbol), which has no CRCs.
func parseSymbols(in io.Reader) (map[string]kmod.Symbol, error) {
	found := map[string]kmod.Symbol{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 4 && strings.HasPrefix(fields[0], "0x"):
			crc, err := strconv.ParseUint(fields[0], 0, 32)
			if err != nil {
				return nil, fmt.Errorf("read the CRC of %s: %w", fields[1], err)
			}
			// A kernel without CONFIG_MODVERSIONS writes zeros.
			found[fields[1]] = kmod.Symbol{Name: fields[1], CRC: uint32(crc), HasCRC: crc != 0}
		case len(fields) == 3:
			if exported, ok := strings.CutPrefix(fields[2], "__ksymtab_"); ok {
				found[exported] = kmod.Symbol{Name: exported}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the kernel's symbols: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the file names no exported symbol: it is neither a Module.symvers nor a System.map")
	}
	return found, nil
}
