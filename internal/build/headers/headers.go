// SPDX-License-Identifier: Apache-2.0

// Package headers makes an image of a kernel's headers from a distribution's packages, for builds
// in the cluster (build.native.headersImage).
//
// The image works wherever it is mounted: absolute paths in it become relative. Links at its root
// lead to the header tree, so that `make -C MOUNT M=$PWD modules` builds against it.
package headers

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/shared/kernel"
)

const (
	// marker is a file of every header tree; it holds the kernel's version.
	marker = "include/generated/utsrelease.h"
	// forRust begins the name of a package that Ubuntu's header trees link to, and may be missing.
	forRust = "linux-lib-rust-"
	// maxText bounds files whose text matters, in bytes.
	maxText = 64 << 10
	// implied is the kind of a folder without an entry of its own.
	implied = 0
)

var (
	// kept are the folders of a package that compiling needs.
	kept = []string{"usr/src/", "usr/lib/", "lib/modules/", "usr/lib/modules/"}
	// release finds the version in the marker.
	release = regexp.MustCompile(`#define\s+UTS_RELEASE\s+"([^"]+)"`)
	// included finds an include by an absolute path, as Debian's header packages have it.
	included = regexp.MustCompile(`(?m)^include (/usr/src/\S+)$`)
)

// Headers is an image of a kernel's headers.
type Headers struct {
	Image v1.Image
	// Kernel is the version, as uname -r prints it.
	Kernel string
	// Architecture as images spell it: amd64 or arm64.
	Architecture string
}

// Make makes an image of the packages of one kernel's headers, .deb or .rpm. Equal packages, in any
// order, give equal images. The layer is a file in dir, which must stay for as long as the image is
// used.
func Make(dir string, packages ...string) (*Headers, error) {
	layer, err := os.CreateTemp(dir, "headers-*.tar")
	if err != nil {
		return nil, fmt.Errorf("make a file for the headers: %w", err)
	}
	t := &tree{archive: tar.NewWriter(layer), seen: map[string]entry{}}
	made, err := t.fill(packages)
	if err := errors.Join(err, t.archive.Close(), layer.Close()); err != nil {
		return nil, err
	}
	made.Image, err = image(layer.Name(), made)
	return made, err
}

// tree is the content of an image while it is written.
type tree struct {
	archive *tar.Writer
	seen    map[string]entry
	// needs are files that others include, by who needs them.
	needs map[string]string
	// roots are the header trees by their versions.
	roots map[string]string
	arch  string
}

func (t *tree) fill(packages []string) (*Headers, error) {
	t.needs, t.roots = map[string]string{}, map[string]string{}
	packages = slices.Clone(packages)
	slices.SortFunc(packages, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	for _, file := range packages {
		arch, err := read(file, t.add)
		if err != nil {
			return nil, err
		}
		if arch != "" && t.arch != "" && arch != t.arch {
			return nil, fmt.Errorf("the packages are for two architectures, %s and %s: give the packages of one kernel", t.arch, arch)
		}
		t.arch = max(arch, t.arch)
	}
	if len(t.roots) != 1 || t.arch == "" {
		return nil, fmt.Errorf("the packages hold %d header trees instead of one, for the architecture %q: give the packages of one "+
			"kernel's headers, "+
			"for example linux-headers-V-amd64, linux-headers-V-common and linux-kbuild-V of Debian, or kernel-devel of Fedora", len(t.roots),
			t.arch)
	}
	made := &Headers{Architecture: t.arch}
	var root string
	for made.Kernel, root = range t.roots {
	}
	if err := kernel.CheckVersion(made.Kernel); err != nil {
		return nil, fmt.Errorf("read the kernel of the packages: %w", err)
	}
	if err := t.complete(); err != nil {
		return nil, err
	}
	return made, t.links(root, made.Kernel)
}

// add writes one entry of a package, unless compiling does not need it.
func (t *tree) add(e entry, content io.Reader) error {
	if !slices.ContainsFunc(kept, func(folder string) bool { return strings.HasPrefix(e.path+"/", folder) && e.path+"/" != folder }) {
		return nil
	}
	if before, again := t.seen[e.path]; again && before.kind != implied {
		if before.kind == tar.TypeDir && e.kind == tar.TypeDir {
			return nil
		}
		return fmt.Errorf("%s is in two packages, or in one of them twice", e.path)
	}
	switch e.kind {
	case tar.TypeDir:
		return t.write(e, nil)
	case tar.TypeSymlink:
		if path.IsAbs(e.link) {
			e.link = relative(path.Dir(e.path), clean(e.link))
		}
		return t.write(e, nil)
	case tar.TypeReg:
		return t.file(e, content)
	}
	return fmt.Errorf("%s is neither a file, nor a folder, nor a symbolic link", e.path)
}

// file writes a file, reads the marker, and makes includes relative.
func (t *tree) file(e entry, content io.Reader) error {
	isMarker := strings.HasSuffix(e.path, "/"+marker)
	if !isMarker && path.Base(e.path) != "Makefile" || e.size > maxText {
		return t.write(e, content)
	}
	text, err := io.ReadAll(io.LimitReader(content, maxText))
	if err != nil {
		return fmt.Errorf("read %s: %w", e.path, err)
	}
	if found := release.FindSubmatch(text); isMarker && found != nil {
		t.roots[string(found[1])] = strings.TrimSuffix(e.path, "/"+marker)
	}
	text = included.ReplaceAllFunc(text, func(line []byte) []byte {
		target := clean(string(line[len("include "):]))
		t.needs[target] = e.path
		// The folder of the Makefile itself, wherever it is.
		return []byte("include $(dir $(realpath $(lastword $(MAKEFILE_LIST))))" + relative(path.Dir(e.path), target))
	})
	e.size = int64(len(text))
	return t.write(e, bytes.NewReader(text))
}

func (t *tree) write(e entry, content io.Reader) error {
	t.seen[e.path] = e
	for folder := path.Dir(e.path); folder != "."; folder = path.Dir(folder) {
		if _, there := t.seen[folder]; !there {
			t.seen[folder] = entry{path: folder, kind: implied}
		}
	}
	header := &tar.Header{Name: e.path, Typeflag: e.kind, Mode: e.mode, Linkname: e.link, Size: e.size, ModTime: e.changed,
		Format: tar.FormatPAX}
	if e.kind == tar.TypeDir {
		header.Name += "/"
	}
	if e.kind != tar.TypeReg {
		header.Size = 0
	}
	if err := t.archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", e.path, err)
	}
	if content == nil || e.kind != tar.TypeReg {
		return nil
	}
	if _, err := io.Copy(t.archive, bufio.NewReader(content)); err != nil {
		return fmt.Errorf("write %s: %w", e.path, err)
	}
	return nil
}

// complete finds files that are missing, since a distribution's headers come in several packages.
func (t *tree) complete() error {
	for _, e := range t.seen {
		if e.kind == tar.TypeSymlink && strings.HasPrefix(e.path, "usr/src/") && !strings.Contains(e.link, forRust) {
			t.needs[path.Join(path.Dir(e.path), e.link)] = e.path
		}
	}
	var missing []string
	for target, by := range t.needs {
		if _, there := t.seen[target]; !there {
			missing = append(missing, fmt.Sprintf("%s (for %s)", target, by))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("the packages lack %s: give the package that holds it, too; it is a dependency of the others",
			strings.Join(missing[:min(3, len(missing))], ", "))
	}
	return nil
}

// links makes the header tree available at the root of the image and where modules look for it.
func (t *tree) links(root, kernel string) error {
	changed := t.seen[root+"/"+marker].changed
	var names []string
	for name := range t.seen {
		if path.Dir(name) == root {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "usr" || name == "lib" { // the root's own hold the packages' files
			continue
		}
		if err := t.write(entry{path: name, kind: tar.TypeSymlink, mode: 0o777, link: root + "/" + name, changed: changed}, nil); err != nil {
			return err
		}
	}
	build := "lib/modules/" + kernel + "/build"
	if _, there := t.seen[build]; there {
		return nil
	}
	return t.write(entry{path: build, kind: tar.TypeSymlink, mode: 0o777, link: relative(path.Dir(build), root), changed: changed}, nil)
}

// relative is the way from a folder to a target, both relative to the same root.
func relative(folder, target string) string {
	way, err := filepath.Rel(folder, target)
	if err != nil {
		return target // cannot happen for clean, relative paths
	}
	return way
}

func image(layer string, made *Headers) (v1.Image, error) {
	content, err := tarball.LayerFromFile(layer, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	return repack.Single(content, v1.ConfigFile{Architecture: made.Architecture, Config: v1.Config{
		Labels: map[string]string{"org.opencontainers.image.title": "Headers of Linux " + made.Kernel},
	}})
}
