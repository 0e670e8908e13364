// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

var (
	debian = Platform{Kernel: "6.1.0-37-amd64", Architecture: "amd64"}
	newer  = Platform{Kernel: "6.12.9+deb12-amd64", Architecture: "amd64"}
	other  = Platform{Kernel: "5.14.0", Architecture: "amd64"}
)

func secret(name string) *corev1.LocalObjectReference {
	return &corev1.LocalObjectReference{Name: name}
}

// built asks for everything that does not leave the hub, at both levels.
func built() *hubv1beta1.ManagedClusterModule {
	build := func() *v1beta1.Build {
		return &v1beta1.Build{DockerfileConfigMap: secret("dockerfile"), Secrets: []corev1.LocalObjectReference{*secret("build-secret")}}
	}
	sign := func() *v1beta1.Sign {
		return &v1beta1.Sign{KeySecret: secret("sign-key"), CertSecret: secret("sign-cert"), FilesToSign: []string{"/opt/*.ko"}}
	}
	return &hubv1beta1.ManagedClusterModule{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: hubv1beta1.ManagedClusterModuleSpec{
		SpokeNamespace: "drivers",
		ModuleSpec: v1beta1.ModuleSpec{
			Selector: map[string]string{"nic": "yes"}, ImageRepoSecret: secret("pull"),
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Build: build(), Sign: sign(), ContainerImage: "example.com/nic:${KERNEL_FULL_VERSION}", RegistryTLS: v1beta1.TLSOptions{Insecure: true},
				Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic"},
				KernelMappings: []v1beta1.KernelMapping{
					{Regexp: `^6\.1\.`, Build: build(), Sign: sign(), RegistryTLS: &v1beta1.TLSOptions{InsecureSkipTLSVerify: true},
						InTreeModulesToRemove: []string{"old"}},
					{Regexp: `^6\.`},
				},
			}},
		},
	}}
}

func TestAClustersModule(t *testing.T) {
	m, before := built(), built()
	module, err := ForCluster(m, []Platform{debian, newer, other}, map[Platform]string{debian: "example.com/nic@sha256:1"}, "1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, m); diff != "" {
		t.Errorf("the ManagedClusterModule itself has changed:\n%s", diff)
	}
	if module.Name != "nic" || module.Namespace != "drivers" || module.Labels[NameLabel] != "nic" ||
		module.Spec.ImageRepoSecret.Name != "pull" {
		t.Errorf("the Module is %+v", module.ObjectMeta)
	}
	container := module.Spec.ModuleLoader.Container
	want := []v1beta1.KernelMapping{
		{Literal: debian.Kernel, ContainerImage: "example.com/nic@sha256:1", RegistryTLS: &v1beta1.TLSOptions{InsecureSkipTLSVerify: true},
			InTreeModulesToRemove: []string{"old"}},
		{Literal: newer.Kernel},
	}
	if diff := cmp.Diff(want, container.KernelMappings); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
	if !container.RegistryTLS.Insecure || container.ContainerImage == "" {
		t.Errorf("the container lost its image or its registry's TLS settings: %+v", container)
	}
	text, err := json.Marshal(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"sign-key", "sign-cert", "build-secret", "dockerfile", `"build"`, `"sign"`} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s leaves the hub", secret)
		}
	}
}

// TestClustersAreApart: what one has does not show in another's.
func TestClustersAreApart(t *testing.T) {
	m := built()
	first, err1 := ForCluster(m, []Platform{debian}, nil, "1")
	second, err2 := ForCluster(m, []Platform{newer}, nil, "1")
	again, err3 := ForCluster(m, []Platform{debian}, nil, "1")
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("a second time gives another Module:\n%s", diff)
	}
	if got := second.Spec.ModuleLoader.Container.KernelMappings; len(got) != 1 || got[0].Literal != newer.Kernel {
		t.Errorf("the second cluster has %+v", got)
	}
	if first.Annotations[RevisionAnnotation] == second.Annotations[RevisionAnnotation] {
		t.Error("different Modules have one revision")
	}
}

func TestModulesThatTheHubMakesNothingFor(t *testing.T) {
	prebuilt := built()
	container := &prebuilt.Spec.ModuleSpec.ModuleLoader.Container
	container.Build, container.Sign, container.KernelMappings[0].Build, container.KernelMappings[0].Sign = nil, nil, nil, nil
	module, err := ForCluster(prebuilt, nil, nil, "1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(container.KernelMappings, module.Spec.ModuleLoader.Container.KernelMappings); diff != "" {
		t.Errorf("the mappings are others:\n%s", diff)
	}
	plugin := &hubv1beta1.ManagedClusterModule{
		Spec: hubv1beta1.ManagedClusterModuleSpec{ModuleSpec: v1beta1.ModuleSpec{DevicePlugin: &v1beta1.DevicePluginSpec{}}}}
	if module, err := ForCluster(plugin, nil, nil, "1"); err != nil || module.Spec.DevicePlugin == nil {
		t.Errorf("without a loader: %v", err)
	}
}
