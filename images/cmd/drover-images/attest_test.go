// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	predicate "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statement "github.com/in-toto/attestation/go/v1"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/drover-project/drover/images/provenance"
	"github.com/drover-project/drover/images/sbom"
)

// pushed is what a registry has after a push of the cow's image.
type pushed struct {
	repository name.Repository
	index      v1.ImageIndex
	digest     v1.Hash
}

// version is nowhere in a program but where the linker puts it.
const version = "v1.0.0-told"

// push compiles the cow anew, and pushes its image to a registry of its own.
func push(t *testing.T, lists bool) pushed {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(lists)))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	err := run(t.Context(), io.Discard, []string{
		"--repository", "../../..", "--binary-dir", t.TempDir(), "--version", version, "--only", "lolcow", "--arch", "amd64",
		"--push", host + "/drover",
	})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/drover/lolcow:" + version)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return pushed{repository: tag.Context(), index: index, digest: digest}
}

// referrers are the artifacts about something, by type, each with what is in its file.
func (p pushed) referrers(t *testing.T, about v1.Hash) map[string]string {
	t.Helper()
	list, err := remote.Referrers(p.repository.Digest(about.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := list.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, described := range manifest.Manifests {
		artifact, err := remote.Image(p.repository.Digest(described.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		head, err := artifact.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if head.Subject == nil || head.Subject.Digest != about {
			t.Errorf("%s is about %+v, want %s", described.Digest, head.Subject, about)
		}
		layers, err := artifact.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%s has %d layers, %v", described.Digest, len(layers), err)
		}
		file, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		found[head.ArtifactType] = string(text)
	}
	return found
}

// platform is the only image of the index.
func (p pushed) platform(t *testing.T) (v1.Image, v1.Hash) {
	t.Helper()
	manifest, err := p.index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("index %+v", manifest)
	}
	image, err := p.index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image, manifest.Manifests[0].Digest
}

// linkedInto is what the program in the image says of itself.
func linkedInto(t *testing.T, image v1.Image) *debug.BuildInfo {
	t.Helper()
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	for archive := tar.NewReader(flat); ; {
		entry, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		if entry.Name != "usr/local/bin/lolcow" {
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.Read(bytes.NewReader(data))
		if err != nil || len(info.Deps) == 0 {
			t.Fatalf("the cow has no modules, %v", err)
		}
		if !bytes.Contains(data, []byte(version)) {
			t.Error("the cow does not know its version")
		}
		return info
	}
}

// TestPushedImagesSayWhatIsInThem and how they were made, in a registry that lists referrers and in
// one that does not; two builds say the same, to the byte.
func TestPushedImagesSayWhatIsInThem(t *testing.T) {
	first, second := push(t, true), push(t, false)
	if first.digest != second.digest {
		t.Fatalf("two builds have the digests %s and %s", first.digest, second.digest)
	}
	image, platform := first.platform(t)
	document, made := first.referrers(t, platform), first.referrers(t, first.digest)
	if diff := cmp.Diff(document, second.referrers(t, platform)); diff != "" {
		t.Errorf("SBOMs of two builds (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(made, second.referrers(t, first.digest)); diff != "" {
		t.Errorf("provenances of two builds (-first +second):\n%s", diff)
	}
	checkDocument(t, document[sbom.MediaType], platform, linkedInto(t, image))
	checkProvenance(t, made[provenance.MediaType], first.digest)
	home, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{home, os.TempDir(), os.Getenv("HOME"), machine} {
		for _, text := range []string{document[sbom.MediaType], made[provenance.MediaType]} {
			if len(secret) > 3 && strings.Contains(text, secret) {
				t.Errorf("%q of this machine is in\n%s", secret, text)
			}
		}
	}
}

func checkDocument(t *testing.T, text string, platform v1.Hash, info *debug.BuildInfo) {
	t.Helper()
	var document v2_3.Document
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatalf("SBOM %q: %v", text, err)
	}
	if err := spdxlib.ValidateDocument(&document); err != nil {
		t.Errorf("not a valid document: %v", err)
	}
	if document.Packages[0].PackageChecksums[0].Value != platform.Hex {
		t.Errorf("the SBOM is about %+v, want %s", document.Packages[0], platform)
	}
	for _, m := range info.Deps {
		at := slices.IndexFunc(document.Packages, func(p *v2_3.Package) bool { return p.PackageName == m.Path })
		if at < 0 || document.Packages[at].PackageVersion != m.Version || document.Packages[at].PackageLicenseDeclared == "NOASSERTION" {
			t.Errorf("module %s %s is not in the SBOM with version and licence", m.Path, m.Version)
		}
	}
}

func checkProvenance(t *testing.T, text string, index v1.Hash) {
	t.Helper()
	var said statement.Statement
	if err := protojson.Unmarshal([]byte(text), &said); err != nil {
		t.Fatalf("statement %q: %v", text, err)
	}
	if err := said.Validate(); err != nil {
		t.Errorf("not a valid statement: %v", err)
	}
	if got := said.GetSubject()[0].GetDigest()["sha256"]; got != index.Hex {
		t.Errorf("the statement is about %s, want %s", got, index.Hex)
	}
	content, err := protojson.Marshal(said.GetPredicate())
	if err != nil {
		t.Fatal(err)
	}
	var how predicate.Provenance
	if err := protojson.Unmarshal(content, &how); err != nil {
		t.Fatal(err)
	}
	if err := how.Validate(); err != nil || said.GetPredicateType() != provenance.Predicate {
		t.Errorf("not a valid provenance: %v, type %s", err, said.GetPredicateType())
	}
	commit, err := exec.CommandContext(t.Context(), "git", "-C", "../../..", "rev-parse", "HEAD").Output()
	if err != nil {
		return // not a checkout
	}
	got := how.GetBuildDefinition().GetResolvedDependencies()
	if len(got) != 1 || got[0].GetDigest()["gitCommit"] != strings.TrimSpace(string(commit)) {
		t.Errorf("made of %v, want commit %s", got, commit)
	}
}

// TestReadSources: the time is the commit's, unless SOURCE_DATE_EPOCH says another; a change is
// told; a folder without git has neither.
func TestReadSources(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	dir := t.TempDir()
	empty, err := readSources(t.Context(), dir)
	if err != nil || empty.Commit != "" || empty.Time.Unix() != 0 {
		t.Fatalf("a folder without git: %+v, %v", empty, err)
	}
	git := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_COMMITTER_DATE=@1000000000 +0200", "GIT_AUTHOR_DATE=@1 +0000")
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, said)
		}
	}
	git("init", "-q")
	git("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "first")
	clean, err := readSources(t.Context(), dir)
	if err != nil || len(clean.Commit) != 40 || clean.Changed || clean.Time.Unix() != 1e9 {
		t.Errorf("a clean checkout: %+v, %v", clean, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "7")
	changed, err := readSources(t.Context(), dir)
	if err != nil || changed.Commit != clean.Commit || !changed.Changed || changed.Time.Unix() != 7 {
		t.Errorf("with a new file and SOURCE_DATE_EPOCH: %+v, %v", changed, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := readSources(t.Context(), dir); err == nil {
		t.Error("a time that is none was taken")
	}
}
