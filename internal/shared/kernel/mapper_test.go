// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func loader(change func(*v1beta1.ModuleLoaderContainerSpec)) *v1beta1.ModuleLoaderSpec {
	spec := &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
		ContainerImage: "registry.example/$MOD_NAMESPACE/${MOD_NAME}:${KERNEL_FULL_VERSION}",
		Modprobe:       v1beta1.ModprobeSpec{ModuleName: "kmod_a", Parameters: []string{"a=1"}},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: "."}},
	}}
	change(&spec.Container)
	return spec
}

func TestMapperMatch(t *testing.T) {
	mappings := []v1beta1.KernelMapping{
		{Literal: "6.1.0-18-amd64", ContainerImage: "r/literal:1"},
		{Literal: "6.1.0-local+", ContainerImage: "r/plus:1"},
		{Regexp: `el8`, ContainerImage: "r/unanchored:1"},
		{Regexp: `^6\.1\.0`, ContainerImage: "r/first:1"},
		{Regexp: `^6\.1\.0-18`, ContainerImage: "r/never:1"},
		{Regexp: `^5\.10\.0-[0-9]+-amd64$`},
	}
	mapper, err := NewMapper(loader(func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings = mappings }), "ns", "mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kernel, image, version string
		mapping                int
	}{
		{kernel: "6.1.0-18-amd64", version: "6.1.0-18-amd64", image: "r/literal:1", mapping: 0},
		{kernel: "6.1.0-18-amd64+", version: "6.1.0-18-amd64", image: "r/literal:1", mapping: 0},
		{kernel: "6.1.0-local", version: "6.1.0-local", image: "r/plus:1", mapping: 1},
		{kernel: "6.1.0-local+", version: "6.1.0-local", image: "r/plus:1", mapping: 1},
		{kernel: "4.18.0-348.23.1.el8_5.x86_64", version: "4.18.0-348.23.1.el8_5.x86_64", image: "r/unanchored:1", mapping: 2},
		{kernel: "6.1.0-18-arm64", version: "6.1.0-18-arm64", image: "r/first:1", mapping: 3},
		{kernel: "5.10.0-13-amd64+", version: "5.10.0-13-amd64", image: "registry.example/ns/mod:5.10.0-13-amd64", mapping: 5},
		{kernel: "5.10.0-13-cloud-amd64", mapping: -1},
		{kernel: "", mapping: -1},
	} {
		t.Run(test.kernel, func(t *testing.T) {
			got, ok, err := mapper.For(test.kernel, "amd64")
			if err != nil {
				t.Fatal(err)
			}
			if ok != (test.mapping >= 0) {
				t.Fatalf("found %v", ok)
			}
			if !ok {
				return
			}
			if got.Mapping != test.mapping || got.Config.ContainerImage != test.image || got.Config.KernelVersion != test.version {
				t.Errorf("got mapping %d, image %q, version %q; want %d, %q, %q",
					got.Mapping, got.Config.ContainerImage, got.Config.KernelVersion, test.mapping, test.image, test.version)
			}
		})
	}
}

// TestMapperArchitecture: one kernel version may be that of several processors.
func TestMapperArchitecture(t *testing.T) {
	mapper, err := NewMapper(loader(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.KernelMappings = []v1beta1.KernelMapping{
			{Literal: "6.1.0", Architecture: "amd64", ContainerImage: "r/amd64:1"},
			{Literal: "6.1.0", Architecture: "arm64", ContainerImage: "r/arm64:1"},
			{Regexp: "^6", Architecture: "arm64", ContainerImage: "r/arm64:6"},
			{Literal: "6.2.0", ContainerImage: "r/any:1"},
		}
	}), "ns", "mod")
	if err != nil {
		t.Fatal(err)
	}
	for platform, image := range map[Platform]string{
		{"6.1.0", "amd64"}: "r/amd64:1", {"6.1.0", "arm64"}: "r/arm64:1", {"6.1.0+", "arm64"}: "r/arm64:1", {"6.1.0", "s390x"}: "",
		{"6.2.0", "amd64"}: "r/any:1", {"6.2.0", "arm64"}: "r/arm64:6", {"6.3.0", "amd64"}: "", {"6.1.0", ""}: "r/amd64:1",
	} {
		got, ok, err := mapper.For(platform.Kernel, platform.Architecture)
		if err != nil || ok != (image != "") || got.Config.ContainerImage != image {
			t.Errorf("%v: %q, found %t, %v; want %q", platform, got.Config.ContainerImage, ok, err, image)
		}
	}
}

func TestMapperConfig(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*v1beta1.ModuleLoaderContainerSpec)
		want  func(*v1beta1.ModuleConfig)
	}{
		"defaults": {},
		"pull policy and settings are taken over": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.ImagePullPolicy = corev1.PullAlways
				c.Modprobe.DirName = "/usr"
				c.Modprobe.FirmwarePath = "/firmware"
			},
			want: func(c *v1beta1.ModuleConfig) {
				c.ImagePullPolicy = corev1.PullAlways
				c.Modprobe.DirName = "/usr"
				c.Modprobe.FirmwarePath = "/firmware"
			},
		},
		"the container's TLS settings": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.RegistryTLS.InsecureSkipTLSVerify = true },
			want:  func(c *v1beta1.ModuleConfig) { c.InsecurePull = true },
		},
		"the mapping's TLS settings override": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.RegistryTLS.Insecure = true
				c.KernelMappings[0].RegistryTLS = &v1beta1.TLSOptions{}
			},
		},
		"the container's in-tree modules": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.InTreeModulesToRemove = []string{"a", "b"} },
			want:  func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove = []string{"a", "b"} },
		},
		"the mapping's in-tree modules override": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.InTreeModulesToRemove = []string{"a", "b"}
				c.KernelMappings[0].InTreeModulesToRemove = []string{"c"}
			},
			want: func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove = []string{"c"} },
		},
		"an empty list in the mapping is unset": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.InTreeModulesToRemove = []string{"a"}
				c.KernelMappings[0].InTreeModulesToRemove = []string{}
			},
			want: func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove = []string{"a"} },
		},
		"empty lists stay off the wire": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.InTreeModulesToRemove = []string{}
				c.KernelMappings[0].InTreeModulesToRemove = []string{}
			},
		},
		"the pull policy": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.ImagePullPolicy = corev1.PullAlways },
			want:  func(c *v1beta1.ModuleConfig) { c.ImagePullPolicy = corev1.PullAlways },
		},
		"the deprecated field becomes a list, as with KMM": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.InTreeModuleToRemove = "old" },
			want:  func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove = []string{"old"} },
		},
		"the mapping's deprecated field overrides": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.InTreeModuleToRemove = "old"
				c.KernelMappings[0].InTreeModuleToRemove = "older"
			},
			want: func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove = []string{"older"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := loader(func(c *v1beta1.ModuleLoaderContainerSpec) {
				if test.given != nil {
					test.given(c)
				}
			})
			mapper, err := NewMapper(spec, "ns", "mod")
			if err != nil {
				t.Fatal(err)
			}
			got, ok, err := mapper.For("6.1.0-18-amd64", "amd64")
			if err != nil || !ok {
				t.Fatalf("found %v, error %v", ok, err)
			}
			want := v1beta1.ModuleConfig{
				KernelVersion:  "6.1.0-18-amd64",
				ContainerImage: "registry.example/ns/mod:6.1.0-18-amd64",
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "kmod_a", Parameters: []string{"a=1"}, DirName: "/opt"},
			}
			if test.want != nil {
				test.want(&want)
			}
			if diff := cmp.Diff(want, got.Config); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConfigsAreWhatKMMWrites: a KMM that comes back compares what stands with what it would write,
// and unloads everything that differs. What stands is JSON: an empty pull policy is one, for a
// field that is left out gets the schema's default.
func TestConfigsAreWhatKMMWrites(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*v1beta1.ModuleLoaderContainerSpec)
		want  string
	}{
		"nothing said": {
			given: func(*v1beta1.ModuleLoaderContainerSpec) {},
			want:  `"imagePullPolicy":"","insecurePull":false`,
		},
		"everything said": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) {
				c.ImagePullPolicy, c.InTreeModuleToRemove, c.RegistryTLS.InsecureSkipTLSVerify = corev1.PullNever, "old", true
			},
			want: `"imagePullPolicy":"Never","insecurePull":true,"inTreeModulesToRemove":["old"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			mapper, err := NewMapper(loader(test.given), "ns", "mod")
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := mapper.For("6.1.0-18-amd64", "amd64")
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(got.Config)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"kernelVersion":"6.1.0-18-amd64","containerImage":"registry.example/ns/mod:6.1.0-18-amd64",` + test.want +
				`,"modprobe":{"moduleName":"kmod_a","parameters":["a=1"],"dirName":"/opt"}}`
			if diff := cmp.Diff(want, string(text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCanonical(t *testing.T) {
	want := v1beta1.ModuleConfig{ImagePullPolicy: corev1.PullIfNotPresent, InTreeModulesToRemove: []string{"a"}}
	for name, given := range map[string]v1beta1.ModuleConfig{
		"the same":             want,
		"the deprecated field": {ImagePullPolicy: corev1.PullIfNotPresent, InTreeModuleToRemove: "a"},
		"no policy":            {InTreeModulesToRemove: []string{"a"}},
	} {
		if diff := cmp.Diff(want, Canonical(given)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestInTreeModules(t *testing.T) {
	for _, test := range []struct {
		config v1beta1.ModuleConfig
		want   []string
	}{
		{},
		{config: v1beta1.ModuleConfig{InTreeModuleToRemove: "old"}, want: []string{"old"}},
		{config: v1beta1.ModuleConfig{InTreeModulesToRemove: []string{"a", "b"}}, want: []string{"a", "b"}},
	} {
		if diff := cmp.Diff(test.want, InTreeModules(&test.config)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestNewMapperRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*v1beta1.ModuleLoaderContainerSpec)
		want  string
	}{
		"neither": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings[0].Regexp = "" },
			want:  "kernelMappings[0]: exactly one of regexp and literal must be set",
		},
		"both": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings[0].Literal = "6.1.0" },
			want:  "kernelMappings[0]: exactly one of",
		},
		"expression": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings[0].Regexp = "(" },
			want:  "kernelMappings[0].regexp: error parsing regexp: missing closing )",
		},
		"no image": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.ContainerImage = "" },
			want:  "kernelMappings[0]: containerImage must be set",
		},
		"unknown variable in the container's image": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.ContainerImage = "a:$KERNEL" },
			want:  "spec.moduleLoader.container.containerImage: unknown variable KERNEL;",
		},
		"unknown variable in a mapping's image": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings[0].ContainerImage = "a:${X}" },
			want:  "kernelMappings[0].containerImage: unknown variable X;",
		},
		"an image cannot name itself": {
			given: func(c *v1beta1.ModuleLoaderContainerSpec) { c.ContainerImage = "$CONTAINER_IMAGE-signed" },
			want:  "the image cannot use variable CONTAINER_IMAGE, which stands for it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewMapper(loader(test.given), "ns", "mod")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := NewMapper(nil, "ns", "mod"); err == nil {
		t.Error("no moduleLoader is accepted")
	}
}

func TestMapperForError(t *testing.T) {
	mapper, err := NewMapper(loader(func(c *v1beta1.ModuleLoaderContainerSpec) { c.ContainerImage = "a:$KERNEL_RHEL_VERSION" }), "ns", "mod")
	if err != nil {
		t.Fatal(err)
	}
	_, ok, err := mapper.For("6.1.0-18-amd64", "amd64")
	want := "spec.moduleLoader.container.containerImage: variable KERNEL_RHEL_VERSION: kernel 6.1.0-18-amd64 is not a RHEL kernel"
	if !ok || err == nil || err.Error() != want {
		t.Errorf("found %v, error %v", ok, err)
	}
}

// TestMapperRefusesWhatNoOrderHolds: the schema of a node's orders would refuse it on each pass.
func TestMapperRefusesWhatNoOrderHolds(t *testing.T) {
	image := strings.Repeat("${KERNEL_FULL_VERSION}", 100)
	mapper, err := NewMapper(loader(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.ContainerImage, c.KernelMappings = "r/a:"+image, []v1beta1.KernelMapping{{Regexp: "."}}
	}), "ns", "mod")
	if err != nil {
		t.Fatal(err)
	}
	for length, want := range map[int]string{
		40: "",
		64: "spec.moduleLoader.container.containerImage has 6404 characters on this kernel, more than 4096",
		65: `"` + strings.Repeat("6", 64) + `…" is not a kernel version: uname -r prints at most 64 of A-Z a-z 0-9 . _ + ~ - and begins ` +
			"with a letter or digit",
	} {
		_, ok, err := mapper.For(strings.Repeat("6", length), "amd64")
		if !ok || want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d: found %v, error %v", length, ok, err)
		}
	}
}

func TestMapperIsShared(t *testing.T) {
	spec := loader(func(c *v1beta1.ModuleLoaderContainerSpec) { c.InTreeModulesToRemove = []string{"a"} })
	mapper, err := NewMapper(spec, "ns", "mod")
	if err != nil {
		t.Fatal(err)
	}
	spec.Container.KernelMappings[0].Regexp = "nothing" // the informer's object is not ours to depend on
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 100 {
				got, ok, err := mapper.For(fmt.Sprintf("6.1.%d-%d-amd64", i%50, worker%2), "amd64")
				if err != nil || !ok || got.Config.InTreeModulesToRemove[0] != "a" {
					t.Errorf("got %v, %v, %v", got, ok, err)
					return
				}
				got.Config.InTreeModulesToRemove[0] = "changed" // the result is the caller's
			}
		})
	}
	group.Wait()
}

// The worst case is a kernel that only the last of many expressions matches.
func BenchmarkMapperFor(b *testing.B) {
	spec := loader(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.KernelMappings = nil
		for i := range 100 {
			c.KernelMappings = append(c.KernelMappings, v1beta1.KernelMapping{Regexp: fmt.Sprintf(`^6\.%d\.[0-9]+-.*amd64$`, i)})
		}
	})
	mapper, err := NewMapper(spec, "ns", "mod")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := mapper.For("6.99.12-18-amd64", "amd64"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
