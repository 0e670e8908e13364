// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/images/licence"
	"github.com/drover-project/drover/images/provenance"
	"github.com/drover-project/drover/images/sbom"
)

// predicateType is the annotation by which tools find a kind of statement among referrers.
const predicateType = "in-toto.io/predicate-type"

// attestation is what goes with an image.
type attestation struct {
	// Referrers are artifacts: an SBOM for each processor's image, and the provenance of the index.
	Referrers []v1.Image
	// Files are the same contents, by file name.
	Files map[string][]byte
}

// attest says what is in the images of a program, and how they were made.
func (o options) attest(ctx context.Context, p images.Program, byArch map[string]v1.Image, index v1.ImageIndex) (*attestation, error) {
	from, err := readSources(ctx, o.repository)
	if err != nil {
		return nil, err
	}
	licences, err := licence.FindSources(ctx, o.repository)
	if err != nil {
		return nil, err
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest of the index: %w", err)
	}
	build := provenance.Build{
		Name: p.Name, SHA256: digest.Hex, Version: o.version, Packages: []any{p.Package}, Commit: from.Commit, Changed: from.Changed,
	}
	for _, pkg := range p.Beside {
		build.Packages = append(build.Packages, pkg)
	}
	if !p.Project {
		build.Sources = images.SourceURL
	}
	made := &attestation{Files: map[string][]byte{}}
	for _, arch := range slices.Sorted(maps.Keys(byArch)) {
		text, err := sbom.Describe(byArch[arch], sbom.About{Name: p.Name, Version: o.version, Created: from.Time, Licences: licences})
		if err != nil {
			return nil, fmt.Errorf("SBOM for %s: %w", arch, err)
		}
		referrer, err := images.Referrer(byArch[arch], sbom.MediaType, text, nil)
		if err != nil {
			return nil, fmt.Errorf("SBOM for %s: %w", arch, err)
		}
		made.Referrers = append(made.Referrers, referrer)
		made.Files[p.Name+"-"+arch+".spdx.json"] = text
		if err := madeOf(&build, arch, byArch[arch]); err != nil {
			return nil, err
		}
	}
	text, err := provenance.State(build)
	if err != nil {
		return nil, err
	}
	referrer, err := images.Referrer(index, provenance.MediaType, text, map[string]string{predicateType: provenance.Predicate})
	if err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	made.Referrers = append(made.Referrers, referrer)
	made.Files[p.Name+".provenance.json"] = text
	return made, nil
}

// madeOf adds to a build what an image says of its compiler and of what others compiled.
func madeOf(build *provenance.Build, arch string, image v1.Image) error {
	contents, err := sbom.Read(image)
	if err != nil {
		return err
	}
	build.Processors = append(build.Processors, arch)
	for _, file := range contents.Files {
		if file.Program != nil {
			build.Compiler = file.Program.GoVersion
		}
	}
	for _, p := range contents.Packages {
		build.Parts = append(build.Parts, p.URL())
	}
	return nil
}

// sources are what a repository's checkout holds.
type sources struct {
	// Commit is empty outside of git.
	Commit  string
	Changed bool
	// Time is that of the commit, or what SOURCE_DATE_EPOCH says; else that of 1970.
	Time time.Time
}

// readSources asks git, if there is git and a checkout of it.
func readSources(ctx context.Context, repository string) (sources, error) {
	found := sources{Time: time.Unix(0, 0)}
	git := func(args ...string) (string, error) {
		command := exec.CommandContext(ctx, "git", args...)
		command.Dir = repository
		said, err := command.Output()
		return strings.TrimSpace(string(said)), err
	}
	commit, err := git("log", "-1", "--format=%H %ct")
	var ended *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &ended):
		// An archive of the sources, or a machine without git: the images say nothing of a commit.
	case err != nil:
		return sources{}, fmt.Errorf("ask git for the commit: %w", err)
	default:
		hash, at, _ := strings.Cut(commit, " ")
		changes, err := git("status", "--porcelain")
		if err != nil {
			return sources{}, fmt.Errorf("ask git for changes: %w", err)
		}
		found.Commit, found.Changed = hash, changes != ""
		if found.Time, err = seconds(at); err != nil {
			return sources{}, fmt.Errorf("time of the commit: %w", err)
		}
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		if found.Time, err = seconds(epoch); err != nil {
			return sources{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
	}
	return found, nil
}

func seconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(n, 0), nil
}

// save writes the files into a folder, and says where they are.
func (a *attestation) save(out io.Writer, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder of SBOMs: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Files)) {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, a.Files[name], 0o644); err != nil {
			return fmt.Errorf("write what is in an image: %w", err)
		}
		fmt.Fprintln(out, file)
	}
	return nil
}
