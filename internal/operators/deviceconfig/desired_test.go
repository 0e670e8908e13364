// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
)

func given(change func(*v1alpha1.DeviceConfigSpec)) *v1alpha1.DeviceConfig {
	d := &v1alpha1.DeviceConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nic"},
		Spec:       v1alpha1.DeviceConfigSpec{DriverImage: "registry.example.com/vendor/driver", DriverVersion: "1.0"},
	}
	if change != nil {
		change(&d.Spec)
	}
	return d
}

// TestDesiredChildren compares all that is written for a DeviceConfig with what stands in testdata.
func TestDesiredChildren(t *testing.T) {
	for file, change := range map[string]func(*v1alpha1.DeviceConfigSpec){
		"minimal.yaml": nil,
		"full.yaml": func(s *v1alpha1.DeviceConfigSpec) {
			s.DriverVersion, s.NodeSelector = "2.0-rc.1", map[string]string{"example.com/pool": "accelerators"}
			s.ModuleName, s.KernelRegexp = "vendor_nic", `^.+-amd64$`
			s.DevicePluginImage, s.ServiceAccountName = "registry.example.com/vendor/plugin:1.0", "vendor-images"
		},
	} {
		children, err := desired(given(change))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, child := range children {
			sent, err := kube.Fields(child)
			if err != nil {
				t.Fatal(err)
			}
			delete(sent, "status")
			text, err := yaml.Marshal(sent)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(text))
		}
		want, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), strings.Join(got, "---\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// TestModuleIsPrebuilt: an image is never built or signed in the cluster, whatever a DeviceConfig
// says.
func TestModuleIsPrebuilt(t *testing.T) {
	m := module(given(func(s *v1alpha1.DeviceConfigSpec) { s.DevicePluginImage = "plugin:1" }))
	container := m.Spec.ModuleLoader.Container
	if container.Build != nil || container.Sign != nil || len(container.KernelMappings) != 1 ||
		container.KernelMappings[0].Build != nil || container.KernelMappings[0].Sign != nil {
		t.Errorf("%+v", container)
	}
	if want := "registry.example.com/vendor/driver:1.0-${KERNEL_FULL_VERSION}"; container.KernelMappings[0].ContainerImage != want {
		t.Errorf("image %s, want %s", container.KernelMappings[0].ContainerImage, want)
	}
	if container.ImagePullPolicy != corev1.PullAlways {
		t.Errorf("pull policy %s", container.ImagePullPolicy)
	}
}

// TestDefaultKernels: kernels of Enterprise Linux, those with a minor release of two digits too,
// which the pattern of the authoring guide misses.
func TestDefaultKernels(t *testing.T) {
	guide := regexp.MustCompile(`^.*\.el\d_?\d?\..*$`)
	pattern := regexp.MustCompile(v1alpha1.DefaultKernelRegexp)
	for version, then := range map[string]struct{ matches, didBefore bool }{
		"4.18.0-372.26.1.el8_6.x86_64":   {true, true},
		"4.18.0-553.el8_10.x86_64":       {true, false},
		"4.18.0-80.el8.x86_64":           {true, true},
		"5.14.0-503.11.1.el9_5.aarch64":  {true, true},
		"6.12.0-55.9.1.el10_0.x86_64":    {true, false},
		"6.12.0-124.el10.x86_64+debug":   {true, true},
		"6.1.0-44-amd64":                 {false, false},
		"6.11.4-301.fc41.x86_64":         {false, false},
		"6.8.0-45-generic":               {false, false},
		"5.14.0-el.x86_64":               {false, false},
		".el8.x86_64":                    {false, true},
		"5.15.0-101.el9uek.x86_64":       {false, false},
		"4.18.0-305.el8_4_custom.x86_64": {false, false},
	} {
		if got := pattern.MatchString(version); got != then.matches {
			t.Errorf("%s: %t", version, got)
		}
		if got := guide.MatchString(version); got != then.didBefore {
			t.Errorf("%s: the guide's pattern says %t", version, got)
		}
	}
}

// TestImageIsAValidReference on kernels whose version has characters that no tag may have.
func TestImageIsAValidReference(t *testing.T) {
	d := given(func(s *v1alpha1.DeviceConfigSpec) { s.KernelRegexp = ".+" })
	for version, then := range map[string]string{
		"5.14.0-503.el9_5.x86_64": "registry.example.com/vendor/driver:1.0-5.14.0-503.el9_5.x86_64",
		"6.12.57+deb12-amd64":     "registry.example.com/vendor/driver:1.0-6.12.57_deb12-amd64",
		"6.6.0-custom+":           "registry.example.com/vendor/driver:1.0-6.6.0-custom",
	} {
		m := module(d)
		mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, "ns", m.Name)
		if err != nil {
			t.Fatal(err)
		}
		resolved, found, err := mapper.For(version, "amd64")
		if err != nil || !found {
			t.Fatalf("%s: found %t, %v", version, found, err)
		}
		if _, err := name.NewTag(resolved.Config.ContainerImage, name.StrictValidation); err != nil || resolved.Config.ContainerImage != then {
			t.Errorf("%s: %s (%v), want %s", version, resolved.Config.ContainerImage, err, then)
		}
	}
}

// TestModuleFieldsAreThoseThatAreWritten: what is looked for in the CustomResourceDefinition is all
// that is sent.
func TestModuleFieldsAreThoseThatAreWritten(t *testing.T) {
	m := module(given(func(s *v1alpha1.DeviceConfigSpec) { s.DevicePluginImage = "plugin:1" }))
	for _, field := range moduleFields {
		if !set(t, m, field) {
			t.Errorf("%s is not written", field)
		}
	}
	text, err := yaml.Marshal(m.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "securityContext") {
		t.Error("securityContext: upstream's Module has none")
	}
}

// set reports whether a Module has a field, by its path.
func set(t *testing.T, m *v1beta1.Module, path string) bool {
	t.Helper()
	text, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var at any
	if err := yaml.Unmarshal(text, &at); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Split(path, ".") {
		if list, ok := at.([]any); ok && len(list) > 0 {
			at = list[0]
		}
		fields, ok := at.(map[string]any)
		if !ok || fields[key] == nil {
			return false
		}
		at = fields[key]
	}
	return true
}
