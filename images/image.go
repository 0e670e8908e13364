// SPDX-License-Identifier: Apache-2.0

// Package images makes container images out of local files, without a
// container engine. The same files always give the same digest: entries are
// sorted, times are zero, and nothing of this machine gets in.
package images

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// searchPath lets a pod name a program without its folder.
const searchPath = "PATH=/usr/local/bin:/usr/bin:/bin"

// KmodRoot is where a kernel module image holds lib/modules: the default of
// Module.spec.moduleLoader.container.modprobe.dirName.
const KmodRoot = "/opt"

// KmodPath is the path in a kernel module image of a file of one kernel.
// Name is relative to the kernel's folder: "extra/x.ko", "modules.dep".
func KmodPath(kernel, name string) string {
	return path.Join(KmodRoot, "lib/modules", kernel, name)
}

// KmodImage makes a kernel module image: exactly the given files, local file by absolute path in
// the image, and nothing else; no shell, no user, no entry point. A local file that is executable
// stays so. Arch is Go's name of the processor: amd64.
func KmodImage(files map[string]string, arch string) (v1.Image, error) {
	return build(files, arch, v1.Config{})
}

// LabelledImage makes an image of files alone, as KmodImage does, with labels.
func LabelledImage(files, labels map[string]string, arch string) (v1.Image, error) {
	return build(files, arch, v1.Config{Labels: labels})
}

// licences of the images, by whether kmod and its libraries are in them.
const (
	ownLicence   = "Apache-2.0"
	kmodLicences = "Apache-2.0 AND GPL-2.0-or-later AND LGPL-2.1-or-later AND BSD-3-Clause AND 0BSD"
)

// programImage makes the image of static programs, local file by path in the image.
func programImage(p Program, binaries map[string]string, arch, version string) (v1.Image, error) {
	licence := ownLicence
	if _, ok := binaries[KmodProgram]; ok {
		licence = kmodLicences
	}
	about := map[string]string{
		"org.opencontainers.image.title":       p.Name,
		"org.opencontainers.image.description": p.Description,
		"org.opencontainers.image.version":     version,
	}
	if !p.Project {
		about["org.opencontainers.image.licenses"] = licence
		about["org.opencontainers.image.source"] = SourceURL
	}
	return build(binaries, arch, v1.Config{
		User:       p.User,
		Entrypoint: []string{p.programPath(p.Package)},
		Env:        []string{searchPath},
		WorkingDir: "/",
		Labels:     about,
	})
}

func build(files map[string]string, arch string, config v1.Config) (v1.Image, error) {
	layer, err := newLayer(files)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: time.Unix(0, 0).UTC()},
		Config:       config,
		RootFS:       v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("set the image's configuration: %w", err)
	}
	image, err = mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	return image, nil
}

// MultiArch joins images of one program, by processor, to one that every node can pull.
func MultiArch(byArch map[string]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(byArch)) {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        byArch[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index
}
