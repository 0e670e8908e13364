// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
)

const kernelVersion = "6.1.0-56-amd64"

func ref(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }

func module(change ...func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u"},
		Spec: v1beta1.ModuleSpec{
			Selector:        map[string]string{},
			ImageRepoSecret: ref("repo"),
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Build:          &v1beta1.Build{DockerfileConfigMap: ref("dockerfile")},
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "m"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "r.example/m:$KERNEL_FULL_VERSION"}},
			}},
		},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func declare(t *testing.T, m *v1beta1.Module, kernelVersion string) (*v1alpha1.ModuleImageSpec, error) {
	t.Helper()
	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	if err != nil {
		t.Fatal(err)
	}
	resolved, found, err := mapper.For(kernelVersion, "amd64")
	if err != nil || !found {
		t.Fatalf("resolve: %v, %v", found, err)
	}
	return pipeline.Declare(m, &resolved, "amd64")
}

// image gives what a Module asks for, with all inputs.
func image(t *testing.T, m *v1beta1.Module, source *corev1.ConfigMap, builder string) *v1alpha1.ModuleImage {
	t.Helper()
	spec, err := declare(t, m, kernelVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := pipeline.Complete(m.Namespace, spec, source, builder); err != nil {
		t.Fatal(err)
	}
	spec.WantedBy = []string{pipeline.WantedByModule(m.Name)}
	return &v1alpha1.ModuleImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: pipeline.Name(spec), UID: "i"}, Spec: *spec,
	}
}

func configMap(content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Data: map[string]string{"dockerfile": content}}
}

func container(m *v1beta1.Module) *v1beta1.ModuleLoaderContainerSpec {
	return &m.Spec.ModuleLoader.Container
}

func mapping(m *v1beta1.Module) *v1beta1.KernelMapping { return &container(m).KernelMappings[0] }

// TestMappingsSettingsWin: each field of build and sign can be set in the container and in the
// mapping. Nothing is dropped.
func TestMappingsSettingsWin(t *testing.T) {
	plain := v1beta1.TLSOptions{Insecure: true}
	m := module(func(m *v1beta1.Module) {
		container(m).Build = &v1beta1.Build{
			DockerfileConfigMap: ref("below"), BuildArgs: []v1beta1.BuildArg{{Name: "A", Value: "1"}, {Name: "B", Value: "1"}},
			Secrets: []corev1.LocalObjectReference{{Name: "s1"}}, Selector: map[string]string{"a": "b"},
		}
		container(m).Sign = &v1beta1.Sign{KeySecret: ref("k1"), CertSecret: ref("c1"), FilesToSign: []string{"/opt/a.ko"}, UnsignedImage: "r/u:1"}
		mapping(m).Build = &v1beta1.Build{
			DockerfileConfigMap: ref("above"), BuildArgs: []v1beta1.BuildArg{{Name: "B", Value: "2"}, {Name: "KERNEL_X", Value: "mine"}},
			Secrets: []corev1.LocalObjectReference{{Name: "s2"}, {Name: "s1"}}, Selector: map[string]string{"c": "d"},
			BaseImageRegistryTLS: plain, KanikoParams: &v1beta1.KanikoParams{Tag: "v1"},
		}
		mapping(m).Sign = &v1beta1.Sign{
			KeySecret: ref("k2"), CertSecret: ref("c2"), FilesToSign: []string{"/opt/$KERNEL_XYZ/b.ko"},
			UnsignedImage: "$CONTAINER_IMAGE-unsigned", UnsignedImageRegistryTLS: plain,
		}
		mapping(m).RegistryTLS = &v1beta1.TLSOptions{InsecureSkipTLSVerify: true}
	})
	spec, err := declare(t, m, kernelVersion)
	if err != nil {
		t.Fatal(err)
	}
	args := map[string]string{}
	for _, a := range spec.Build.Args {
		args[a.Name] = a.Value
	}
	for name, value := range map[string]string{
		"A": "1", "B": "2", "KERNEL_X": "mine", "KERNEL_FULL_VERSION": kernelVersion, "KERNEL_VERSION": kernelVersion, "MOD_NAME": "m",
		"MOD_NAMESPACE":   "ns",
		"CONTAINER_IMAGE": "r.example/m:" + kernelVersion, "KERNEL_DEBIAN_RELEASE": "56",
	} {
		if args[name] != value {
			t.Errorf("build argument %s is %q, want %q", name, args[name], value)
		}
	}
	spec.Build.Args = nil
	if diff := cmp.Diff(&v1alpha1.ImageBuild{
		DockerfileConfigMap: "above", Secrets: []string{"s1", "s2"}, Selector: map[string]string{"c": "d"}, BaseImageRegistryTLS: plain,
	}, spec.Build); diff != "" {
		t.Error("build:", diff)
	}
	if diff := cmp.Diff(&v1alpha1.ImageSign{
		KeySecret: "k2", CertSecret: "c2", Files: []string{"/opt/a.ko", "/opt/6.1.0/b.ko"},
		UnsignedImage: "r.example/m:" + kernelVersion + "-unsigned", UnsignedImageRegistryTLS: plain,
	}, spec.Sign); diff != "" {
		t.Error("sign:", diff)
	}
	if !spec.RegistryTLS.InsecureSkipTLSVerify {
		t.Error("the mapping's registryTLS was dropped")
	}
}

func TestWhatIsBuilt(t *testing.T) {
	native := &v1beta1.NativeBuild{ToolchainImage: "r/gcc:$KERNEL_X", SourceImage: "r/src:1"}
	for name, tc := range map[string]struct {
		given       func(*v1beta1.Module)
		build, sign bool
		fails       string
	}{
		"as the container says": {given: func(m *v1beta1.Module) { mapping(m).Build = &v1beta1.Build{} }, build: true},
		"the mapping alone": {given: func(m *v1beta1.Module) { mapping(m).Build, container(m).Build = container(m).Build, nil },
			build: true},
		"empty is unset":                 {given: func(m *v1beta1.Module) { container(m).Build = &v1beta1.Build{DockerfileConfigMap: ref("")} }},
		"nothing":                        {given: func(m *v1beta1.Module) { container(m).Build = nil }},
		"native in place of Dockerfiles": {given: func(m *v1beta1.Module) { mapping(m).Build = &v1beta1.Build{Native: native} }, build: true},
		"sign only": {given: func(m *v1beta1.Module) {
			container(m).Build, container(m).Sign = nil, &v1beta1.Sign{KeySecret: ref("k"), CertSecret: ref("c"), UnsignedImage: "r/u:1"}
		}, sign: true},
		"sign only, nothing to sign": {given: func(m *v1beta1.Module) {
			container(m).Build, container(m).Sign = nil, &v1beta1.Sign{KeySecret: ref("k"), CertSecret: ref("c")}
		}, fails: "unsignedImage must be set"},
		"no key": {given: func(m *v1beta1.Module) { container(m).Sign = &v1beta1.Sign{} }, fails: "keySecret and certSecret must be set"},
		"the key as a Secret of the build": {given: func(m *v1beta1.Module) {
			container(m).Sign = &v1beta1.Sign{KeySecret: ref("k"), CertSecret: ref("c")}
			mapping(m).Build = &v1beta1.Build{Secrets: []corev1.LocalObjectReference{{Name: "k"}}}
		}, fails: "Secret k holds the signing key"},
		"no toolchain": {given: func(m *v1beta1.Module) {
			mapping(m).Build = &v1beta1.Build{Native: &v1beta1.NativeBuild{SourceImage: "r/s:1"}}
		}, fails: "toolchainImage must be set"},
		"no source": {given: func(m *v1beta1.Module) {
			mapping(m).Build = &v1beta1.Build{Native: &v1beta1.NativeBuild{ToolchainImage: "r/t:1"}}
		}, fails: "sourceImage or native.sourceConfigMap must be set"},
		"unknown variable": {given: func(m *v1beta1.Module) {
			mapping(m).Build = &v1beta1.Build{Native: &v1beta1.NativeBuild{ToolchainImage: "r/$NOPE"}}
		}, fails: "unknown variable NOPE"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := declare(t, module(tc.given), kernelVersion)
			switch {
			case tc.fails != "":
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("error %v, want %q", err, tc.fails)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if (spec != nil && spec.Build != nil) != tc.build || (spec != nil && spec.Sign != nil) != tc.sign {
				t.Errorf("%+v", spec)
			}
		})
	}
}

// TestIdentity: what decides what an image holds is in its hash, the rest is not.
func TestIdentity(t *testing.T) {
	signed := func(m *v1beta1.Module) {
		container(m).Sign = &v1beta1.Sign{KeySecret: ref("k"), CertSecret: ref("c"), FilesToSign: []string{"/opt/a.ko"}}
	}
	hash := func(content, builder string, change ...func(*v1beta1.Module)) string {
		return image(t, module(append([]func(*v1beta1.Module){signed}, change...)...), configMap(content), builder).Spec.Hash
	}
	base := hash("FROM a", "b@1")
	same := map[string]string{
		"again":          hash("FROM a", "b@1"),
		"the map's name": hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Build.DockerfileConfigMap.Name = "other" }),
		"tolerations":    hash("FROM a", "b@1", func(m *v1beta1.Module) { m.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }),
		"pull secret":    hash("FROM a", "b@1", func(m *v1beta1.Module) { m.Spec.ImageRepoSecret = nil }),
		"TLS":            hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Build.BaseImageRegistryTLS.Insecure = true }),
		"the nodes":      hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Build.Selector = map[string]string{"a": "b"} }),
		"resources": hash("FROM a", "b@1", func(m *v1beta1.Module) {
			container(m).Build.Resources = &v1beta1.BuildResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Gi")}}
		}),
		"rebuild": hash("FROM a", "b@1", func(m *v1beta1.Module) { m.Spec.ImageRebuildTriggerGeneration = ptr.To(2) }),
		"a device plugin": hash("FROM a", "b@1", func(m *v1beta1.Module) {
			m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "p:1"}}
		}),
	}
	for what, got := range same {
		if got != base {
			t.Errorf("%s is in the identity", what)
		}
	}
	other := map[string]string{
		"the Dockerfile": hash("FROM b", "b@1"),
		"the builder":    hash("FROM a", "b@2"),
		"an argument": hash("FROM a", "b@1",
			func(m *v1beta1.Module) { container(m).Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "1"}} }),
		"a secret": hash("FROM a", "b@1", func(m *v1beta1.Module) {
			container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "s"}}
		}),
		"the output":   hash("FROM a", "b@1", func(m *v1beta1.Module) { mapping(m).ContainerImage = "r.example/n:1" }),
		"the key":      hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign.KeySecret.Name = "k2" }),
		"the cert":     hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign.CertSecret.Name = "c2" }),
		"the files":    hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign.FilesToSign = []string{"/opt/b.ko"} }),
		"no signature": hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign = nil }),
		"the module":   hash("FROM a", "b@1", func(m *v1beta1.Module) { m.Name = "other" }),
	}
	seen := map[string]string{base: "the base"}
	for what, got := range other {
		if before, ok := seen[got]; ok {
			t.Errorf("%s gives the same hash as %s", what, before)
		}
		seen[got] = what
	}
}
