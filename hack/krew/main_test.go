// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// plugin is krew's format, v1alpha2: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// digests of archives, one for each platform.
func digests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range platforms {
		content, err := archive([]byte("program for "+p), []byte("license"))
		if err != nil {
			t.Fatal(err)
		}
		all[strings.Replace(p, "/", "_", 1)] = digest(content)
	}
	return all
}

// TestManifest: what is filled in has krew's format and nothing that krew does not know, a platform
// for each archive, and the archive's digest.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile(path.Join(root, manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	sums := digests(t)
	manifest, err := fill(string(text), "v1.2.0", "https://example.com/v1.2.0/", sums)
	if err != nil {
		t.Fatal(err)
	}
	var p plugin
	if err := yaml.UnmarshalStrict(manifest, &p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Spec.Version != "v1.2.0" {
		t.Errorf("the head is %+v", p)
	}
	// The index wants the file's name, lower case with dashes.
	if p.Metadata.Name+".yaml" != path.Base(manifestFile) || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(p.Metadata.Name) {
		t.Errorf("the name is %s", p.Metadata.Name)
	}
	if s := p.Spec.ShortDescription; s == "" || len(s) > 50 || strings.HasSuffix(s, ".") || p.Spec.Description == "" ||
		p.Spec.Homepage == "" {
		t.Errorf("it does not describe itself in short: %+v", p.Spec)
	}
	var have []string
	for _, at := range p.Spec.Platforms {
		system, processor := at.Selector.MatchLabels["os"], at.Selector.MatchLabels["arch"]
		have = append(have, system+"/"+processor)
		if at.URI != "https://example.com/v1.2.0/drover-"+system+"-"+processor+".tar.gz" || at.Bin != program ||
			at.SHA256 != sums[system+"_"+processor] ||
			!regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(at.SHA256) || len(at.Selector.MatchLabels) != 2 {
			t.Errorf("platform %+v", at)
		}
	}
	if diff := cmp.Diff(platforms, have); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	delete(sums, "linux_arm64")
	if _, err := fill(string(text), "v1.2.0", "https://example.com", sums); err == nil {
		t.Error("a digest may be missing")
	}
}

// TestArchive: equal programs give equal bytes, and the program can be executed.
func TestArchive(t *testing.T) {
	first, err := archive([]byte("program"), []byte("license"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := archive([]byte("program"), []byte("license"))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two archives differ: %v", err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name+" "+header.FileInfo().Mode().String()] = string(content)
	}
	if diff := cmp.Diff(map[string]string{"drover -rwxr-xr-x": "program", "LICENSE -rw-r--r--": "license"}, found); diff != "" {
		t.Errorf("the archive (-want +got):\n%s", diff)
	}
}

// TestVersions that krew takes.
func TestVersions(t *testing.T) {
	for given, ok := range map[string]bool{"v1.2.0": true, "v1.2.0-rc.1": true, "1.2.0": false, "v1.2": false, "dev": false, "": false} {
		if err := known(given); (err == nil) != ok {
			t.Errorf("%q: %v", given, err)
		}
	}
}
