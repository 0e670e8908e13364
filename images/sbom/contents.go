// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"archive/tar"
	"bytes"
	"crypto/sha1" //nolint:gosec // SPDX asks for it, beside SHA-256
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/drover-project/drover/images/licence"
)

// PackageDir is where an image says which packages of Debian's its files are from, as images
// without a package manager do: a control paragraph for each, and beside it the list of its files.
const PackageDir = "/var/lib/dpkg/status.d"

// OSRelease is where an image says of which distribution these packages are: os-release(5).
const OSRelease = "/usr/lib/os-release"

// listEnding is that of the list of a package's files.
const listEnding = ".md5sums"

// Contents is what is in an image.
type Contents struct {
	// Arch is Go's name of the processor.
	Arch string
	// Files by path, sorted.
	Files []File
	// Packages of Debian's, by name, sorted.
	Packages []Package
}

// File is one of an image's.
type File struct {
	Path         string
	SHA1, SHA256 string
	// Program is what Go's linker wrote into it; nil if Go did not make it.
	Program *debug.BuildInfo
}

// Distribution is what an image's os-release says.
type Distribution struct {
	// ID and VersionID are its short name and release, such as debian and 12; Name is for people.
	ID, VersionID, Name string
}

// Package is one of a distribution's.
type Package struct {
	Name, Version, Arch string
	// Of is the distribution.
	Of Distribution
	// Files of it that are in the image, by path.
	Files []string
}

// URL names the package as the purl specification says.
func (p Package) URL() string {
	return fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s&distro=%s-%s", escape(p.Of.ID), p.Name, escape(p.Version), p.Arch,
		escape(p.Of.ID), escape(p.Of.VersionID))
}

// Licence is an SPDX expression; empty if it is not known.
func (p Package) Licence() string {
	return licence.OfDebian(p.Name)
}

// Read looks into an image.
func Read(image v1.Image) (contents *Contents, err error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	contents = &Contents{Arch: config.Architecture}
	flat := mutate.Extract(image)
	defer func() { err = errors.Join(err, flat.Close()) }()
	described := map[string][]byte{}
	var distribution []byte
	for archive := tar.NewReader(flat); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the image's files: %w", err)
		}
		if entry.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("read %s of the image: %w", entry.Name, err)
		}
		file := newFile(path.Join("/", entry.Name), data)
		contents.Files = append(contents.Files, file)
		if file.Path == OSRelease {
			distribution = data
		}
		if path.Dir(file.Path) == PackageDir {
			described[path.Base(file.Path)] = data
		}
	}
	slices.SortFunc(contents.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if contents.Packages, err = packages(described); err != nil {
		return nil, err
	}
	of := readOSRelease(distribution)
	if len(contents.Packages) > 0 && (of.ID == "" || of.VersionID == "") {
		return nil, fmt.Errorf("the image has packages, and its %s does not say of which distribution", OSRelease)
	}
	for i := range contents.Packages {
		contents.Packages[i].Of = of
	}
	return contents, nil
}

// readOSRelease reads NAME=value, where values may be in quotes.
func readOSRelease(text []byte) Distribution {
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = strings.Trim(value, `"'`)
	}
	return Distribution{ID: values["ID"], VersionID: values["VERSION_ID"], Name: values["NAME"]}
}

func newFile(name string, data []byte) File {
	file := File{Path: name, SHA1: fmt.Sprintf("%x", sha1.Sum(data)), SHA256: fmt.Sprintf("%x", sha256.Sum256(data))} //nolint:gosec // as above
	if info, err := buildinfo.Read(bytes.NewReader(data)); err == nil {
		file.Program = info
	}
	return file
}

// packages reads control paragraphs and lists of files, by file name.
func packages(described map[string][]byte) ([]Package, error) {
	var found []Package
	for name, control := range described {
		if strings.HasSuffix(name, listEnding) {
			continue
		}
		p := Package{Name: field(control, "Package"), Version: field(control, "Version"), Arch: field(control, "Architecture")}
		if p.Name != name || p.Version == "" {
			return nil, fmt.Errorf("%s does not describe package %s", path.Join(PackageDir, name), name)
		}
		for line := range strings.Lines(string(described[name+listEnding])) {
			if _, file, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
				p.Files = append(p.Files, path.Join("/", file))
			}
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// field is the value of a field of a control paragraph, which has one line.
func field(control []byte, name string) string {
	for line := range strings.Lines(string(control)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
