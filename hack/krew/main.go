// SPDX-License-Identifier: Apache-2.0

// Command krew makes what krew installs as `kubectl drover`: an archive of the program for each
// platform, equal programs giving equal bytes, and the manifest, from config/krew/drover.yaml.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	manifestFile = "config/krew/drover.yaml"
	licenseFile  = "LICENSE"
	program      = "drover"
	linked       = "github.com/drover-project/drover/internal/shared/version"
)

// platforms are those on which the command line tool is compiled by hack/verify.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("krew", flag.ContinueOnError)
	release := flags.String("version", "", "version of the release, such as v1.2.0")
	registry := flags.String("registry", "", "registry of the release's images, which the program names, such as ghcr.io/you")
	place := flags.String("place", "", "URL of the folder from which the archives can be fetched; empty: the release on GitHub")
	out := flags.String("out", "dist/krew", "folder for archives and manifest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := known(*release); err != nil {
		return err
	}
	if *registry == "" {
		return errors.New("--registry must be set: a release's program names the images of its release (make krew REGISTRY=ghcr.io/you)")
	}
	if *place == "" {
		*place = "https://github.com/drover-project/drover/releases/download/" + *release
	}
	license, err := os.ReadFile(licenseFile)
	if err != nil {
		return fmt.Errorf("read the license: %w", err)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	digests := map[string]string{}
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		binary, err := compile(ctx, system, processor, *release, *registry)
		if err != nil {
			return err
		}
		content, err := archive(binary, license)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*out, program+"-"+system+"-"+processor+".tar.gz"), content, 0o644); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		digests[system+"_"+processor] = digest(content)
	}
	text, err := os.ReadFile(manifestFile)
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	manifest, err := fill(string(text), *release, *place, digests)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(*out, program+".yaml"), manifest, 0o644); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// known reports a version that krew would refuse: it wants semantic ones, after a "v".
func known(release string) error {
	if _, err := version.ParseSemantic(release); err != nil || !strings.HasPrefix(release, "v") {
		return fmt.Errorf("--version %q is not a version such as v1.2.0", release)
	}
	return nil
}

func compile(ctx context.Context, system, processor, release, registry string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "krew-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, program)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags",
		fmt.Sprintf("-s -w -X %[1]s.Version=%[2]s -X %[1]s.Registry=%[3]s", linked, release, registry), "-o", path, "./cmd/"+program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor)
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile for %s/%s: %w\n%s", system, processor, err, said)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	return binary, nil
}

// archive holds the program and the license, without anything that differs between two runs.
func archive(binary, license []byte) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	files := tar.NewWriter(compressed)
	for _, f := range []struct {
		name    string
		mode    int64
		content []byte
	}{{program, 0o755, binary}, {licenseFile, 0o644, license}} {
		header := &tar.Header{
			Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0).UTC(), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if err := files.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write the archive: %w", err)
		}
		if _, err := files.Write(f.content); err != nil {
			return nil, fmt.Errorf("write the archive: %w", err)
		}
	}
	if err := errors.Join(files.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}
	return out.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// fill makes the manifest of a release. A digest that is missing is an error.
func fill(text, release, place string, digests map[string]string) ([]byte, error) {
	parsed, err := template.New(manifestFile).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{"Version": release, "Place": strings.TrimSuffix(place, "/"), "Digest": digests})
	if err != nil {
		return nil, fmt.Errorf("fill in the manifest: %w", err)
	}
	return out.Bytes(), nil
}
