// SPDX-License-Identifier: Apache-2.0

package ooto

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kube"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is the Module of config/samples/ooto.
func sample(t *testing.T) *v1alpha1.Module {
	t.Helper()
	content, err := os.ReadFile("../../../../config/samples/ooto/module.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Module{}
	if err := yaml.UnmarshalStrict(content, m); err != nil {
		t.Fatal(err)
	}
	m.Namespace, m.UID = "ns", "uid-1"
	return m
}

// TestSampleTranslationGolden: every field of the proposal's YAML has its place in the KMM Module,
// or is named as ignored.
func TestSampleTranslationGolden(t *testing.T) {
	got, err := translate(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{"module": got.module, "dockerfiles": got.dockerfiles, "ignored": got.ignored})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "sample.yaml")
	if *update {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("what the sample becomes (-want +got):\n%s", diff)
	}
}

// TestSampleMakesWhatItSays asks the very code that decides about images what becomes of the sample
// on each kind of kernel.
func TestSampleMakesWhatItSays(t *testing.T) {
	got, err := translate(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	got.module.Spec.ModuleLoader.Container.Modprobe.DirName = "/opt" // the API server's default
	mapper, err := kernel.NewMapper(got.module.Spec.ModuleLoader, "ns", "module-sample")
	if err != nil {
		t.Fatal(err)
	}
	type made struct{ Image, Dockerfile, Unsigned string }
	dockerfiles := map[string]string{}
	for _, d := range got.dockerfiles {
		dockerfiles[d.Name] = d.Data["dockerfile"]
	}
	const common, own = "FROM some-image\nRUN some-command\n", "FROM some-new-image\nRUN some-other-command\n"
	for version, want := range map[string]made{
		"4.18.0-348.el8.x86_64":   {Image: "ghcr.io/vendor/driver:v1.2.3-4.18.0-348.el8.x86_64"},
		"5.16.11-200.fc35.x86_64": {Image: "ghcr.io/vendor/driver:v1.2.3-5.16.11-200.fc35.x86_64-random-suffix"},
		"6.1.0-1-azure":           {Image: "ghcr.io/vendor/driver:v1.2.3-6.1.0-1-azure", Dockerfile: common},
		"6.1.0-1-aws":             {Image: "quay.io/vendor/module-sample:aws", Dockerfile: common},
		"6.1.0-1-gke": {
			Image: "ghcr.io/vendor/driver:v1.2.3-6.1.0-1-gke", Dockerfile: own, Unsigned: "ghcr.io/vendor/driver:v1.2.3-6.1.0-1-gke-unsigned",
		},
	} {
		resolved, found, err := mapper.For(version, "amd64")
		if err != nil || !found {
			t.Fatalf("%s: %v, %v", version, found, err)
		}
		have := made{Image: resolved.Config.ContainerImage}
		spec, err := pipeline.Declare(got.module, &resolved, "amd64")
		switch {
		case err != nil:
			t.Errorf("%s: %v", version, err)
		case spec != nil:
			have.Dockerfile = dockerfiles[spec.Build.DockerfileConfigMap]
			if spec.Sign != nil {
				have.Unsigned = spec.Sign.UnsignedImage
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// simple is the least Module that there can be.
func simple(change ...func(*v1alpha1.Module)) *v1alpha1.Module {
	m := &v1alpha1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "my-nic", UID: "uid-1"},
		Spec: v1alpha1.ModuleSpec{
			Selector: map[string]string{"a": "b"},
			DriverContainer: v1alpha1.DriverContainerSpec{Container: v1alpha1.DriverContainer{
				ContainerImage: "r.example/nic:1", KernelMappings: []v1alpha1.KernelMapping{{Regexp: "."}},
			}},
		},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

// translated is the simple Module in the other group.
func translatedSimple(change func(*v1beta1.ModuleSpec)) v1beta1.ModuleSpec {
	spec := v1beta1.ModuleSpec{
		Selector: map[string]string{"a": "b"},
		ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			ContainerImage: "r.example/nic:1", KernelMappings: []v1beta1.KernelMapping{{Regexp: "."}},
			Modprobe: v1beta1.ModprobeSpec{ModuleName: "my_nic"},
		}},
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func TestTranslate(t *testing.T) {
	dockerfile := func(text string) *corev1.LocalObjectReference {
		return &corev1.LocalObjectReference{Name: "my-nic-dockerfile-" + kube.Digest(text, hashDigits)}
	}
	cases := map[string]struct {
		given   func(*v1alpha1.Module)
		then    func(*v1beta1.ModuleSpec)
		ignored []string
		texts   []string
	}{
		"the least": {},
		"no selector is every node": {
			given: func(m *v1alpha1.Module) { m.Spec.Selector = nil },
			then:  func(s *v1beta1.ModuleSpec) { s.Selector = map[string]string{} },
		},
		"what is loaded can be said": {
			given: func(m *v1alpha1.Module) {
				m.Spec.DriverContainer.Container.Modprobe = &v1alpha1.Modprobe{ModuleName: "nic", Parameters: []string{"debug=1"}, DirName: "/srv"}
			},
			then: func(s *v1beta1.ModuleSpec) {
				s.ModuleLoader.Container.Modprobe = v1beta1.ModprobeSpec{ModuleName: "nic", Parameters: []string{"debug=1"}, DirName: "/srv"}
			},
		},
		"a build of the container's alone builds nothing": {
			given: func(m *v1alpha1.Module) {
				m.Spec.DriverContainer.Container.Build = &v1alpha1.Build{Dockerfile: "FROM a"}
			},
		},
		"build: {} builds as the container says, and only there": {
			given: func(m *v1alpha1.Module) {
				c := &m.Spec.DriverContainer.Container
				c.Build = &v1alpha1.Build{
					Dockerfile: "FROM a", BuildArgs: []v1alpha1.BuildArg{{Name: "A", Value: "1"}}, Pull: &v1alpha1.Pull{Insecure: true},
					Push: &v1alpha1.Push{Insecure: true, Name: "${CONTAINER_IMAGE}"},
				}
				c.KernelMappings = []v1alpha1.KernelMapping{{Literal: "1", Build: &v1alpha1.Build{}}, {Literal: "2"}}
			},
			then: func(s *v1beta1.ModuleSpec) {
				s.ModuleLoader.Container.KernelMappings = []v1beta1.KernelMapping{{Literal: "1", Build: &v1beta1.Build{
					DockerfileConfigMap: dockerfile("FROM a"), BuildArgs: []v1beta1.BuildArg{{Name: "A", Value: "1"}},
					BaseImageRegistryTLS: v1beta1.TLSOptions{Insecure: true},
					Push:                 &v1beta1.BuildPush{Name: "r.example/nic:1", TLSOptions: v1beta1.TLSOptions{Insecure: true}},
				}}, {Literal: "2"}}
			},
			texts: []string{"FROM a"},
		},
		"a mapping's build is put over the container's": {
			given: func(m *v1alpha1.Module) {
				c := &m.Spec.DriverContainer.Container
				c.Build = &v1alpha1.Build{
					Dockerfile: "FROM a", BuildArgs: []v1alpha1.BuildArg{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
					Pull: &v1alpha1.Pull{Insecure: true}, Push: &v1alpha1.Push{Insecure: true},
				}
				c.KernelMappings[0].Build = &v1alpha1.Build{
					Dockerfile: "FROM b", BuildArgs: []v1alpha1.BuildArg{{Name: "C", Value: "3"}, {Name: "A", Value: "4"}},
					Pull: &v1alpha1.Pull{}, Push: &v1alpha1.Push{},
				}
			},
			then: func(s *v1beta1.ModuleSpec) {
				s.ModuleLoader.Container.KernelMappings[0].Build = &v1beta1.Build{
					DockerfileConfigMap: dockerfile("FROM b"), Push: &v1beta1.BuildPush{},
					BuildArgs: []v1beta1.BuildArg{{Name: "A", Value: "4"}, {Name: "B", Value: "2"}, {Name: "C", Value: "3"}},
				}
			},
			texts: []string{"FROM b"},
		},
		"one text is one ConfigMap": {
			given: func(m *v1alpha1.Module) {
				m.Spec.DriverContainer.Container.KernelMappings = []v1alpha1.KernelMapping{
					{Literal: "1", Build: &v1alpha1.Build{Dockerfile: "FROM a"}}, {Literal: "2", Build: &v1alpha1.Build{Dockerfile: "FROM a"}},
				}
			},
			then: func(s *v1beta1.ModuleSpec) {
				build := &v1beta1.Build{DockerfileConfigMap: dockerfile("FROM a")}
				s.ModuleLoader.Container.KernelMappings = []v1beta1.KernelMapping{{Literal: "1", Build: build}, {Literal: "2", Build: build}}
			},
			texts: []string{"FROM a"},
		},
		"the signed image is what nodes get, and what others call the image stays what it was": {
			given: func(m *v1alpha1.Module) {
				m.Spec.DriverContainer.Container.KernelMappings[0].Build = &v1alpha1.Build{Dockerfile: "FROM a",
					Push: &v1alpha1.Push{Name: "$CONTAINER_IMAGE"}}
				m.Spec.DriverContainer.Container.KernelMappings[0].Sign = &v1alpha1.Sign{
					UnsignedImage: &v1alpha1.Image{Name: "${CONTAINER_IMAGE}"},
					SignedImage:   &v1alpha1.SignedImage{Image: v1alpha1.Image{Name: "${CONTAINER_IMAGE}-signed"}},
					KeySecret:     v1alpha1.SecretReference{Name: "key"}, CertSecret: v1alpha1.SecretReference{Name: "cert"},
					FilesToSign: []string{"/opt/a.ko"},
				}
			},
			then: func(s *v1beta1.ModuleSpec) {
				mapping := &s.ModuleLoader.Container.KernelMappings[0]
				mapping.ContainerImage = "r.example/nic:1-signed"
				mapping.Build = &v1beta1.Build{DockerfileConfigMap: dockerfile("FROM a"), Push: &v1beta1.BuildPush{Name: "r.example/nic:1"}}
				mapping.Sign = &v1beta1.Sign{
					UnsignedImage: "r.example/nic:1", FilesToSign: []string{"/opt/a.ko"},
					KeySecret: &corev1.LocalObjectReference{Name: "key"}, CertSecret: &corev1.LocalObjectReference{Name: "cert"},
				}
			},
			texts: []string{"FROM a"},
		},
		"a Secret for one image comes before those for all, each once": {
			given: func(m *v1alpha1.Module) {
				d := &m.Spec.DriverContainer
				d.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "all"}, {Name: "one"}, {}}
				d.Container.KernelMappings[0].Sign = &v1alpha1.Sign{
					SignedImage: &v1alpha1.SignedImage{PushSecretRef: &v1alpha1.SecretReference{Name: "one"}}}
			},
			then: func(s *v1beta1.ModuleSpec) {
				s.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "one"}, {Name: "all"}}
				s.ModuleLoader.Container.KernelMappings[0].Sign = &v1beta1.Sign{KeySecret: &corev1.LocalObjectReference{},
					CertSecret: &corev1.LocalObjectReference{}}
			},
		},
		"fields of a driver pod are ignored": {
			given: func(m *v1alpha1.Module) {
				d := &m.Spec.DriverContainer
				d.ServiceAccountName = "some-sa"
				d.Volumes = []corev1.Volume{{Name: "v"}}
				d.Container.VolumeMounts = []corev1.VolumeMount{{Name: "v"}}
				d.Container.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			},
			then: func(s *v1beta1.ModuleSpec) { s.ModuleLoader.ServiceAccountName = "some-sa" },
			ignored: []string{"spec.driverContainer.container.securityContext", "spec.driverContainer.container.volumeMounts",
				"spec.driverContainer.volumes"},
		},
		"empty lists of a driver pod are not set": {
			given: func(m *v1alpha1.Module) {
				d := &m.Spec.DriverContainer
				d.Volumes, d.Container.VolumeMounts = []corev1.Volume{}, []corev1.VolumeMount{}
			},
		},
		"a device plugin with all that there is": {
			given: func(m *v1alpha1.Module) {
				m.Spec.DevicePlugin = &v1alpha1.DevicePluginSpec{
					Container: v1alpha1.DevicePluginContainer{
						Image: "p:1", ImagePullPolicy: corev1.PullAlways, Command: []string{"c"}, Args: []string{"a"}, Env: []corev1.EnvVar{{Name: "E"}},
						SecurityContext: &corev1.SecurityContext{}, VolumeMounts: []corev1.VolumeMount{{Name: "v"}},
					},
					ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}, ServiceAccountName: "sa", Volumes: []corev1.Volume{{Name: "v"}},
				}
			},
			then: func(s *v1beta1.ModuleSpec) {
				s.DevicePlugin = &v1beta1.DevicePluginSpec{
					Container: v1beta1.WorkloadContainer{
						Image: "p:1", ImagePullPolicy: corev1.PullAlways, Command: []string{"c"}, Args: []string{"a"}, Env: []corev1.EnvVar{{Name: "E"}},
						SecurityContext: &corev1.SecurityContext{}, VolumeMounts: []corev1.VolumeMount{{Name: "v"}},
					},
					ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}, ServiceAccountName: "sa", Volumes: []corev1.Volume{{Name: "v"}},
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := simple()
			if tc.given != nil {
				given = simple(tc.given)
			}
			before := given.DeepCopy()
			got, err := translate(given)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(translatedSimple(tc.then), got.module.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ignored, got.ignored); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
			var texts []string
			for _, d := range got.dockerfiles {
				texts = append(texts, d.Data[dockerfileKey])
			}
			if diff := cmp.Diff(tc.texts, texts); diff != "" {
				t.Errorf("Dockerfiles (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("what was given is changed:\n%s", diff)
			}
		})
	}
}

func TestSettled(t *testing.T) {
	want, err := translate(simple(func(m *v1alpha1.Module) {
		m.Spec.DriverContainer.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "s"}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		given func(*v1beta1.Module) *v1beta1.Module
		then  bool
	}{
		"nothing is there":  {given: func(*v1beta1.Module) *v1beta1.Module { return nil }},
		"as it was written": {given: func(m *v1beta1.Module) *v1beta1.Module { return m }, then: true},
		"with defaults and fields of others": {given: func(m *v1beta1.Module) *v1beta1.Module {
			m.Spec.ModuleLoader.Container.Modprobe.DirName = "/opt"
			m.Spec.ModuleLoader.Container.Modprobe.FirmwarePath = "/firmware"
			m.Spec.Rollout = &v1beta1.RolloutSpec{Paused: true}
			m.Labels["theirs"], m.Annotations["theirs"], m.Spec.Selector["theirs"] = "", "", ""
			return m
		}, then: true},
		"written for another wish": {given: func(m *v1beta1.Module) *v1beta1.Module { m.Annotations[kube.HashAnnotation] = "x"; return m }},
		"a field of ours is gone":  {given: func(m *v1beta1.Module) *v1beta1.Module { m.Spec.ImageRepoSecrets = nil; return m }},
		"a field of ours is changed": {given: func(m *v1beta1.Module) *v1beta1.Module {
			m.Spec.ModuleLoader.Container.ContainerImage = "r.example/nic:2"
			return m
		}},
		"a list of ours has more": {given: func(m *v1beta1.Module) *v1beta1.Module {
			m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r.example/nic:2"
			return m
		}},
		"the owner is gone": {given: func(m *v1beta1.Module) *v1beta1.Module { m.OwnerReferences = nil; return m }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := settled(want.module, tc.given(want.module.DeepCopy()))
			if err != nil || got != tc.then {
				t.Errorf("settled %v (%v), want %v", got, err, tc.then)
			}
		})
	}
}
