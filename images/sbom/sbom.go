// SPDX-License-Identifier: Apache-2.0

// Package sbom says what is in an image of ours, in SPDX 2.3: its files with their checksums, the
// Go modules that its programs were linked from, by the programs' own account, and packages of
// Debian's. The same image always gives the same bytes.
package sbom

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/drover-project/drover/images/licence"
)

// MediaType of a document.
const MediaType = "application/spdx+json"

// unknown is SPDX's word for what nobody says anything about.
const unknown = "NOASSERTION"

// Licences knows under which licences sources are.
type Licences interface {
	// Own is the licence of the repository that programs are compiled from.
	Own() (string, error)
	// Module is the licence of a module, by path and version.
	Module(path, version string) (string, error)
}

// About is what an image does not say of itself.
type About struct {
	// Name of the image, without a registry.
	Name string
	// Version of the programs.
	Version string
	// Created is the time of the sources, not of the build.
	Created  time.Time
	Licences Licences
}

// Describe makes the document of an image for one processor.
func Describe(image v1.Image, about About) ([]byte, error) {
	contents, err := Read(image)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest of the image: %w", err)
	}
	w := &writer{about: about, ids: map[common.ElementID]bool{}, modules: map[string]common.ElementID{}}
	w.document = v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: about.Name + "-" + contents.Arch,
		CreationInfo: &v2_3.CreationInfo{
			Created:  about.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "drover-images"}},
		},
	}
	root := w.add(&v2_3.Package{
		PackageName: about.Name, PackageVersion: about.Version, PrimaryPackagePurpose: "CONTAINER",
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}},
		PackageExternalReferences: purl(fmt.Sprintf("pkg:oci/%s@%s?arch=%s", about.Name, escape(digest.String()), contents.Arch)),
	}, "Image", config.Config.Labels["org.opencontainers.image.licenses"])
	w.relate("DOCUMENT", common.TypeRelationshipDescribe, root)
	files := map[string]common.ElementID{}
	for _, file := range contents.Files {
		id, err := w.file(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Path, err)
		}
		files[file.Path] = id
		w.relate(root, common.TypeRelationshipContains, id)
	}
	for _, p := range contents.Packages {
		id := w.add(&v2_3.Package{
			PackageName: p.Name, PackageVersion: p.Version, PackageExternalReferences: purl(p.URL()),
			PackageSupplier: &common.Supplier{SupplierType: "Organization", Supplier: p.Of.Name},
		}, "Package-"+p.Name, p.Licence())
		w.relate(root, common.TypeRelationshipContains, id)
		for _, name := range p.Files {
			if _, ok := files[name]; !ok {
				return nil, fmt.Errorf("package %s has %s, which is not in the image", p.Name, name)
			}
			w.relate(id, common.TypeRelationshipContains, files[name])
		}
	}
	return w.finish()
}

// ofFolder is the version of a module that the go command took from a folder.
const ofFolder = "(devel)"

type writer struct {
	about    About
	document v2_3.Document
	ids      map[common.ElementID]bool
	// modules that are in the document, by path and version.
	modules map[string]common.ElementID
}

// file adds a file, with what is linked into it.
func (w *writer) file(f File) (common.ElementID, error) {
	file := &v2_3.File{
		FileName: "." + f.Path, FileSPDXIdentifier: w.id("File" + f.Path), FileCopyrightText: unknown,
		Checksums:        []common.Checksum{{Algorithm: common.SHA1, Value: f.SHA1}, {Algorithm: common.SHA256, Value: f.SHA256}},
		LicenseConcluded: unknown, LicenseInfoInFiles: []string{unknown},
	}
	id := file.FileSPDXIdentifier
	w.document.Files = append(w.document.Files, file)
	if f.Program == nil {
		return id, nil
	}
	file.FileTypes = []string{"BINARY"}
	own, err := known(w.about.Licences.Own())
	if err != nil {
		return "", err
	}
	w.relate(id, common.TypeRelationshipGeneratedFrom, w.module(f.Program.Main.Path, w.about.Version, "", own))
	compiler := strings.TrimPrefix(strings.Fields(f.Program.GoVersion)[0], "go")
	w.relate(id, common.TypeRelationshipStaticLink, w.module("stdlib", compiler, "", licence.Stdlib))
	for _, m := range f.Program.Deps {
		path, version, sum := sourcesOf(m)
		licence := ""
		if version != "" {
			if licence, err = known(w.about.Licences.Module(path, version)); err != nil {
				return "", err
			}
		}
		w.relate(id, common.TypeRelationshipStaticLink, w.module(path, version, sum, licence))
	}
	return id, nil
}

// sourcesOf says which module was compiled for a module. One that was taken from a folder has no
// version and keeps its name: the folder is of the machine.
func sourcesOf(m *debug.Module) (path, version, sum string) {
	from := m
	if m.Replace != nil {
		from = m.Replace
	}
	if from.Version == "" || from.Version == ofFolder {
		return m.Path, "", ""
	}
	return from.Path, from.Version, from.Sum
}

// known lets a licence be unknown that nobody wrote down, or whose sources are not at hand.
func known(id string, err error) (string, error) {
	if errors.Is(err, licence.ErrNone) || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return id, err
}

// module adds a Go module once.
func (w *writer) module(path, version, sum, licence string) common.ElementID {
	name, locator := path, "pkg:golang/"+path
	if version != "" {
		name, locator = path+"@"+version, locator+"@"+escape(version)
	}
	if id, ok := w.modules[name]; ok {
		return id
	}
	p := &v2_3.Package{PackageName: path, PackageVersion: version, PackageExternalReferences: purl(locator)}
	if sum != "" {
		p.PackageSourceInfo = "checksum of go.sum: " + sum
	}
	w.modules[name] = w.add(p, "Go-"+name, licence)
	return w.modules[name]
}

func (w *writer) add(p *v2_3.Package, name, licence string) common.ElementID {
	if licence == "" {
		licence = unknown
	}
	p.PackageSPDXIdentifier = w.id(name)
	p.PackageDownloadLocation, p.PackageCopyrightText = unknown, unknown
	p.PackageLicenseConcluded, p.PackageLicenseDeclared = licence, licence
	w.document.Packages = append(w.document.Packages, p)
	return p.PackageSPDXIdentifier
}

// notInID are the characters that an identifier must not have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// id makes an identifier that the document does not have yet.
func (w *writer) id(name string) common.ElementID {
	base := strings.Trim(notInID.ReplaceAllString(name, "-"), "-")
	id := common.ElementID(base)
	for n := 2; w.ids[id]; n++ {
		id = common.ElementID(fmt.Sprintf("%s-%d", base, n))
	}
	w.ids[id] = true
	return id
}

func (w *writer) relate(from common.ElementID, how string, to common.ElementID) {
	w.document.Relationships = append(w.document.Relationships, &v2_3.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: how, RefB: common.DocElementID{ElementRefID: to},
	})
}

// finish names the document after its content, so that two that differ have two names.
func (w *writer) finish() ([]byte, error) {
	refs := map[string]bool{}
	for _, p := range w.document.Packages {
		for word := range strings.FieldsSeq(p.PackageLicenseDeclared) {
			refs[word] = strings.HasPrefix(word, "LicenseRef-")
		}
	}
	for _, word := range slices.Sorted(maps.Keys(refs)) {
		if refs[word] {
			w.document.OtherLicenses = append(w.document.OtherLicenses, &v2_3.OtherLicense{
				LicenseIdentifier: word, LicenseName: strings.ReplaceAll(strings.TrimPrefix(word, "LicenseRef-"), "-", " "),
				ExtractedText: licence.Text(word),
			})
		}
	}
	draft, err := json.Marshal(w.document)
	if err != nil {
		return nil, fmt.Errorf("write the SBOM: %w", err)
	}
	w.document.DocumentNamespace = fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", w.document.DocumentName, sha256.Sum256(draft))
	text, err := json.MarshalIndent(w.document, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write the SBOM: %w", err)
	}
	return append(text, '\n'), nil
}

func purl(locator string) []*v2_3.PackageExternalReference {
	return []*v2_3.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: locator,
	}}
}

// escape writes a version as a package URL has it.
func escape(version string) string {
	return url.QueryEscape(version)
}
