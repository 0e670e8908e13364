// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

const (
	root = "../.."
	// The images of config/.
	configOperator, configAgent = "registry.invalid/drover/drover-operator:dev", "registry.invalid/drover/drover-agent:dev"
)

// made writes a bundle with the images of config/ and reads what was written: the objects of the
// bundle, and those beside it.
func made(t *testing.T, args ...string) (bundle, rest []*unstructured.Unstructured, annotations map[string]string) {
	t.Helper()
	dir := t.TempDir()
	out, nodes := filepath.Join(dir, "bundle"), filepath.Join(dir, "nodes.yaml")
	args = append([]string{"--version", "v1.2.0", "--operator-image", configOperator, "--agent-image", configAgent,
		"--out", out, "--rest", nodes, "--layout", filepath.Join(dir, "oci")}, args...)
	if err := run(t.Context(), root, args); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(out, "manifests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		bundle = append(bundle, objectsOf(t, path)...)
	}
	content, err := os.ReadFile(filepath.Join(out, "metadata", "annotations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct{ Annotations map[string]string }
	if err := yaml.UnmarshalStrict(content, &metadata); err != nil {
		t.Fatal(err)
	}
	return bundle, objectsOf(t, nodes), metadata.Annotations
}

func objectsOf(t *testing.T, path string) (all []*unstructured.Unstructured) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		o := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.UnmarshalStrict(document, &o.Object)); err != nil {
			t.Fatal(err)
		}
		if o.Object != nil {
			all = append(all, o)
		}
	}
}

// TestNothingIsLost: what an installation by the bundle and the file beside it makes are the
// objects of config/default, no more, no fewer, field by field. The Operator Lifecycle Manager
// names roles and bindings itself, so that their names and labels are those of config/ here.
func TestNothingIsLost(t *testing.T) {
	bundle, rest, _ := made(t)
	config, err := tree.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	want, err := config.Objects([]string{"default"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]any{}
	for _, o := range slices.Concat(installed(t, bundle, want), rest) {
		if got[tree.Name(o)] != nil {
			t.Errorf("%s is there twice", tree.Name(o))
		}
		got[tree.Name(o)] = o.Object
	}
	for _, o := range want {
		if diff := cmp.Diff(o.Object, got[tree.Name(o)]); diff != "" {
			t.Errorf("%s (-config/default +bundle):\n%s", tree.Name(o), diff)
		}
		delete(got, tree.Name(o))
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		t.Errorf("config/default has no %s", name)
	}
}

// installed are the objects that the Operator Lifecycle Manager makes of a bundle.
func installed(t *testing.T, bundle, want []*unstructured.Unstructured) (all []*unstructured.Unstructured) {
	t.Helper()
	namespaced := map[string]string{}
	named := map[string]*unstructured.Unstructured{}
	for _, o := range want {
		namespaced[o.GetKind()], named[tree.Name(o)] = o.GetNamespace(), o
	}
	for _, o := range bundle {
		if o.GetKind() == "ClusterServiceVersion" {
			all = append(all, strategy(t, o, named)...)
			continue
		}
		if o.GetNamespace() != "" {
			t.Errorf("%s has a namespace of its own", tree.Name(o))
		}
		o.SetNamespace(namespaced[o.GetKind()])
		all = append(all, o)
	}
	return all
}

// strategy are the objects of a ClusterServiceVersion.
func strategy(t *testing.T, csv *unstructured.Unstructured, named map[string]*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	var spec struct {
		Install struct {
			Spec struct {
				Deployments []struct {
					Name        string
					Label, Spec map[string]any
				}
				ClusterPermissions, Permissions []struct {
					ServiceAccountName string
					Rules              []any
				}
			}
		}
	}
	text, err := yaml.Marshal(csv.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	s := spec.Install.Spec
	if len(s.Deployments) != 1 || len(s.ClusterPermissions) != 1 || len(s.Permissions) != 1 ||
		s.ClusterPermissions[0].ServiceAccountName != "drover-operator" || s.Permissions[0].ServiceAccountName != "drover-operator" {
		t.Fatalf("not one Deployment with its rights: %+v", s)
	}
	deployment := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": s.Deployments[0].Spec,
		"metadata": map[string]any{"name": s.Deployments[0].Name, "namespace": "drover-system", "labels": s.Deployments[0].Label},
	}}
	all := []*unstructured.Unstructured{deployment}
	for name, rules := range map[string][]any{
		"drover-operator": s.ClusterPermissions[0].Rules, "drover-leader-election": s.Permissions[0].Rules,
	} {
		for _, o := range named {
			switch {
			case o.GetName() != name:
			case strings.HasSuffix(o.GetKind(), "Role"):
				o = o.DeepCopy()
				o.Object["rules"] = rules
				all = append(all, o)
			case strings.HasSuffix(o.GetKind(), "RoleBinding"), o.GetKind() == "ServiceAccount":
				all = append(all, o)
			}
		}
	}
	return all
}

// TestImages: the release's images are everywhere, and none of config/ is left.
func TestImages(t *testing.T) {
	bundle, rest, _ := made(t, "--operator-image", "registry.test/a:1", "--agent-image", "registry.test/b@sha256:0")
	text := map[string]int{}
	for _, o := range slices.Concat(bundle, rest) {
		content, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range []string{"registry.test/a:1", "registry.test/b@sha256:0", "registry.invalid"} {
			text[image+" "+o.GetKind()] += strings.Count(string(content), image)
		}
	}
	maps.DeleteFunc(text, func(_ string, n int) bool { return n == 0 })
	// The operator's pod template names the agent's image in an annotation.
	want := map[string]int{
		"registry.test/a:1 ClusterServiceVersion": 4, "registry.test/b@sha256:0 ClusterServiceVersion": 2,
		"registry.test/b@sha256:0 ConfigMap": 1, "registry.test/b@sha256:0 DaemonSet": 1,
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

// TestChannel: a version to try is not in the channel of those who want none.
func TestChannel(t *testing.T) {
	for version, want := range map[string]string{"v1.2.0": "stable", "v1.2.0-rc.1": "candidate"} {
		_, _, annotations := made(t, "--version", version)
		if got := annotations["operators.operatorframework.io.bundle.channels.v1"]; got != want {
			t.Errorf("%s is in %s, want %s", version, got, want)
		}
	}
}

// TestRefusals: no version, and a kind of which nobody knows whether a bundle can hold it.
func TestRefusals(t *testing.T) {
	for missing, args := range map[string][]string{
		"--operator-image": {"--agent-image", configAgent}, "--agent-image": {"--operator-image", configOperator},
	} {
		err := run(t.Context(), root, append(args, "--version", "v1.2.0", "--out", t.TempDir()))
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	for _, version := range []string{"", "1.2.0", "v1"} {
		err := run(t.Context(), root, []string{"--version", version, "--out", t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "--version") {
			t.Errorf("version %q: %v", version, err)
		}
	}
	strange := &unstructured.Unstructured{Object: map[string]any{"kind": "StatefulSet", "metadata": map[string]any{"name": "x"}}}
	if _, err := split([]*unstructured.Unstructured{strange}); err == nil || !strings.Contains(err.Error(), "StatefulSet x") {
		t.Errorf("a strange kind: %v", err)
	}
}

// TestImage: the registry gets the bundle's files and no other, for both processors, with the
// annotations as labels.
func TestImage(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	reference := strings.TrimPrefix(server.URL, "http://") + "/drover/drover-bundle:v1.2.0"
	bundle, _, annotations := made(t, "--push", reference)
	for _, arch := range []string{"amd64", "arm64"} {
		parsed, err := name.ParseReference(reference)
		if err != nil {
			t.Fatal(err)
		}
		image, err := remote.Image(parsed, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(annotations, config.Config.Labels); diff != "" || config.Architecture != arch {
			t.Errorf("labels of %s (-annotations +labels):\n%s", config.Architecture, diff)
		}
		var files []string
		for archive := tar.NewReader(mutate.Extract(image)); ; {
			entry, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if entry.Typeflag == tar.TypeReg {
				files = append(files, strings.TrimPrefix(entry.Name, "/"))
			}
		}
		want := []string{"metadata/annotations.yaml"}
		for _, o := range bundle {
			want = append(want, "manifests/"+fileName(o))
		}
		slices.Sort(want)
		slices.Sort(files)
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
}
