// SPDX-License-Identifier: Apache-2.0

// Package samples_test holds the samples to what they claim: the API server
// takes them without a warning, and they resolve to images.
package samples_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	kustomization = "kustomization.yaml"
	preflight     = "preflight.yaml"
)

// read decodes a file of this folder and refuses fields that its type lacks.
func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// modules are the samples that are Modules.
func modules(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t), func(file string) bool { return file == preflight })
}

// files are the samples in this folder.
func files(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(file string) bool { return file == kustomization })
}

func TestSamplesPassStrictValidation(t *testing.T) {
	admin := env.Get(t).Admin(t)
	for _, file := range files(t) {
		sample := &unstructured.Unstructured{}
		read(t, file, &sample.Object)
		if err := admin.Create(t.Context(), sample, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestKustomizationListsEverySample(t *testing.T) {
	var content struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}
	read(t, kustomization, &content)
	slices.Sort(content.Resources)
	if diff := cmp.Diff(files(t), content.Resources); diff != "" {
		t.Errorf("resources (-in the folder +listed):\n%s", diff)
	}
}

// TestSamplesDeclareWhatIsMade: what samples have built or signed is complete, and each of the
// three ways has one.
func TestSamplesDeclareWhatIsMade(t *testing.T) {
	got := map[string]string{}
	for _, file := range modules(t) {
		var module v1beta1.Module
		read(t, file, &module)
		if !pipeline.Makes(&module) {
			continue
		}
		mapper, err := kernel.NewMapper(module.Spec.ModuleLoader, module.Namespace, module.Name)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		resolved, _, err := mapper.For("6.1.0-44-amd64", "amd64")
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		spec, err := pipeline.Declare(&module, &resolved, "amd64")
		switch {
		case err != nil:
			t.Errorf("%s: %v", file, err)
		case spec.Build == nil:
			got[file] = "signs " + spec.Sign.UnsignedImage
		case spec.Build.Native != nil:
			got[file] = "compiles against " + spec.Build.Native.HeadersImage
		default:
			got[file] = "builds " + spec.Build.DockerfileConfigMap
		}
	}
	want := map[string]string{
		"build_dockerfile.yaml": "builds example-camera-dockerfile",
		"build_native.yaml":     "compiles against registry.example.com/headers/debian:6.1.0-44-amd64",
		"sign.yaml":             "signs registry.example.com/vendor/example-storage:1.0-6.1.0-44-amd64",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is made, by file (-want +got):\n%s", diff)
	}
}

func TestSamplesResolveToImages(t *testing.T) {
	const (
		debian12  = "6.1.0-44-amd64"
		backports = "6.12.57+deb12-amd64"
		fedora    = "6.11.4-301.fc41.x86_64"
		images    = "registry.example.com/drover/"
	)
	want := map[string]map[string]string{
		"module_sample.yaml": {debian12: images + "drover-sample:1.0-6.1.0-44-amd64", backports: images +
			"drover-sample:1.0-6.12.57_deb12-amd64"},
		"module_literal.yaml": {debian12: images + "drover-sample:1.0-6.1.0-44-amd64", backports: images +
			"drover-sample:1.0-6.12.57_deb12-amd64"},
		"module_minimal.yaml": {debian12: images + "drover-sample:1.0-6.1.0-44-amd64", backports: images +
			"drover-sample:1.0-6.12.57_deb12-amd64"},
		"module_ready.yaml": {backports: images + "example-accel:1.0-6.12.57_deb12-amd64"},
		"build_dockerfile.yaml": {debian12: images + "example-camera:1.0-6.1.0-44-amd64", backports: images +
			"example-camera:1.0-6.12.57_deb12-amd64"},
		"build_native.yaml": {debian12: images + "example-fpga:1.0-6.1.0-44-amd64", backports: images + "example-fpga:1.0-6.12.57_deb12-amd64"},
		"sign.yaml": {debian12: images + "example-storage:1.0-6.1.0-44-amd64-signed", backports: images +
			"example-storage:1.0-6.12.57_deb12-amd64-signed"},
		"v4l2loopback.yaml": {debian12: images + "v4l2loopback:0.12.7-6.1.0-44-amd64"},
	}
	got := map[string]map[string]string{}
	owners := map[string]string{}
	for _, file := range modules(t) {
		var module v1beta1.Module
		read(t, file, &module)
		loads := module.Spec.ModuleLoader.Container.Modprobe.ModuleName
		if other, taken := owners[loads]; taken {
			t.Errorf("%s and %s both load %s", other, file, loads)
		}
		owners[loads] = file
		mapper, err := kernel.NewMapper(module.Spec.ModuleLoader, module.Namespace, module.Name)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got[file] = map[string]string{}
		for _, version := range []string{debian12, backports, fedora} {
			resolved, found, err := mapper.For(version, "amd64")
			if err != nil {
				t.Errorf("%s on %s: %v", file, version, err)
			}
			if !found {
				continue
			}
			if _, err := name.NewTag(resolved.Config.ContainerImage, name.StrictValidation); err != nil {
				t.Errorf("%s on %s: %v", file, version, err)
			}
			got[file][version] = resolved.Config.ContainerImage
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images by file and kernel (-want +got):\n%s", diff)
	}
}
