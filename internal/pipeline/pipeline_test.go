// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kernel"
	"github.com/drover-project/drover/internal/pipeline"
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
	resolved, found, err := mapper.For(kernelVersion)
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

// TestMappingsSettingsWin: each field of build and sign can be set in the container and in the mapping. Nothing is dropped.
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
		"A": "1", "B": "2", "KERNEL_X": "mine", "KERNEL_FULL_VERSION": kernelVersion, "KERNEL_VERSION": kernelVersion, "MOD_NAME": "m", "MOD_NAMESPACE": "ns",
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
		"as the container says":          {given: func(m *v1beta1.Module) { mapping(m).Build = &v1beta1.Build{} }, build: true},
		"the mapping alone":              {given: func(m *v1beta1.Module) { mapping(m).Build, container(m).Build = container(m).Build, nil }, build: true},
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
		"rebuild":        hash("FROM a", "b@1", func(m *v1beta1.Module) { m.Spec.ImageRebuildTriggerGeneration = ptr.To(2) }),
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
		"an argument":    hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "1"}} }),
		"a secret":       hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "s"}} }),
		"the output":     hash("FROM a", "b@1", func(m *v1beta1.Module) { mapping(m).ContainerImage = "r.example/n:1" }),
		"the key":        hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign.KeySecret.Name = "k2" }),
		"the cert":       hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign.CertSecret.Name = "c2" }),
		"the files":      hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign.FilesToSign = []string{"/opt/b.ko"} }),
		"no signature":   hash("FROM a", "b@1", func(m *v1beta1.Module) { container(m).Sign = nil }),
		"the module":     hash("FROM a", "b@1", func(m *v1beta1.Module) { m.Name = "other" }),
	}
	seen := map[string]string{base: "the base"}
	for what, got := range other {
		if before, ok := seen[got]; ok {
			t.Errorf("%s gives the same hash as %s", what, before)
		}
		seen[got] = what
	}
}

func options() *pipeline.Options {
	return &pipeline.Options{
		SignerImage: "drover/drover-signer:dev", BuildahImage: "q/buildah@sha256:" + strings.Repeat("a", 64), HostModules: true,
		User: ptr.To[int64](65532), Deadline: time.Hour,
	}
}

// signing asks for a signature besides the build.
func signing(m *v1beta1.Module) {
	container(m).Sign = &v1beta1.Sign{KeySecret: ref("key"), CertSecret: ref("cert"), FilesToSign: []string{"/opt/a.ko"}}
}

func compiling(m *v1beta1.Module) {
	container(m).Build = &v1beta1.Build{
		Secrets: []corev1.LocalObjectReference{{Name: "licence"}},
		Native:  &v1beta1.NativeBuild{ToolchainImage: "r/gcc:12", HeadersImage: "r/headers:$KERNEL_FULL_VERSION", SourceImage: "r/src:1", Artifacts: []string{"*.ko"}},
	}
}

func job(t *testing.T, change ...func(*v1beta1.Module)) *batchv1.Job {
	t.Helper()
	return pipeline.Job(image(t, module(change...), configMap("FROM a"), options().BuildahImage), 1, "New", options())
}

// steps are the names of all containers, in the order in which they run.
func steps(pod *corev1.PodSpec) []string {
	var names []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		names = append(names, c.Name)
	}
	return names
}

func TestStepsOfAJob(t *testing.T) {
	unsigned := func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = "r/u:1" }
	for name, tc := range map[string]struct {
		given []func(*v1beta1.Module)
		then  []string
	}{
		"build":                  {then: []string{"check", "build", "push"}},
		"build and sign":         {given: []func(*v1beta1.Module){signing}, then: []string{"check", "build", "sign", "push"}},
		"the unsigned image too": {given: []func(*v1beta1.Module){signing, unsigned}, then: []string{"check", "build", "push-unsigned", "sign", "push"}},
		"sign only": {
			given: []func(*v1beta1.Module){signing, unsigned, func(m *v1beta1.Module) { container(m).Build = nil }},
			then:  []string{"check", "pull", "sign", "push"},
		},
		"native": {given: []func(*v1beta1.Module){compiling, signing}, then: []string{"check", "build", "pack", "sign", "push"}},
		"native, from a ConfigMap": {
			given: []func(*v1beta1.Module){compiling, func(m *v1beta1.Module) {
				n := container(m).Build.Native
				n.SourceImage, n.SourceConfigMap = "", ref("source")
			}},
			then: []string{"check", "source", "build", "pack", "push"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(t, tc.given...)
			if diff := cmp.Diff(tc.then, steps(&j.Spec.Template.Spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSecretsAreWhereTheyAreNeeded: the key is in sign alone, beside nothing of the user's and without any registry's secret.
func TestSecretsAreWhereTheyAreNeeded(t *testing.T) {
	for _, kind := range []func(*v1beta1.Module){compiling, func(m *v1beta1.Module) { container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "licence"}} }} {
		pod := job(t, kind, signing).Spec.Template.Spec
		secret := map[string]string{}
		for _, v := range pod.Volumes {
			if v.Secret != nil {
				secret[v.Name] = v.Secret.SecretName
			}
		}
		got := map[string][]string{}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, m := range c.VolumeMounts {
				if name, ok := secret[m.Name]; ok {
					got[c.Name] = append(got[c.Name], name)
					if !m.ReadOnly {
						t.Errorf("%s mounts %s so that it can be written", c.Name, name)
					}
				}
			}
		}
		build := []string{"licence"}
		if pod.InitContainers[1].Image == options().BuildahImage {
			build = append(build, "repo") // base images
		}
		want := map[string][]string{"check": {"repo", "cert"}, "build": build, "sign": {"key", "cert"}, "push": {"repo", "cert"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if pod.ShareProcessNamespace == nil || *pod.ShareProcessNamespace || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Error("the pod's processes see each other, or a token")
		}
	}
}

// TestBuildsFindWhatUpstreamsDo: Secrets and the node's modules inside RUN, arguments, TLS, the right node.
func TestBuildsFindWhatUpstreamsDo(t *testing.T) {
	j := job(t, func(m *v1beta1.Module) {
		container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "licence"}}
		container(m).Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "b c; d"}}
		container(m).Build.BaseImageRegistryTLS.InsecureSkipTLSVerify = true
		container(m).Build.Selector = map[string]string{"builds": "here"}
		container(m).RegistryTLS.Insecure = true
	})
	pod := j.Spec.Template.Spec
	args := strings.Join(pod.InitContainers[1].Args, "\x00") + "\x00"
	for _, want := range []string{
		"--volume\x00/run/secrets/licence:/run/secrets/licence:ro\x00", "--volume\x00/host/lib/modules:/host/lib/modules:ro\x00",
		"--build-arg\x00A=b c; d\x00", "--build-arg\x00KERNEL_FULL_VERSION=" + kernelVersion + "\x00", "--tls-verify=false\x00", "--platform\x00linux/amd64\x00",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "builds": "here"}, pod.NodeSelector); diff != "" {
		t.Error(diff)
	}
	for _, c := range []corev1.Container{pod.InitContainers[0], pod.Containers[0]} {
		if !slices.Contains(c.Args, "--insecure") {
			t.Errorf("%s does not use plain HTTP: %v", c.Name, c.Args)
		}
	}
	if strings.Contains(pod.InitContainers[1].Args[1], "licence") || strings.Contains(pod.InitContainers[1].Args[1], "b c; d") {
		t.Error("a value is part of the script's text")
	}
}

// TestBuildahHasNoPowersOverTheNode: the capabilities that its user namespace needs, mirrors where it looks for them, storage that goes with the
// pod, and a node's profiles untouched where Pod Security may forbid to leave them.
func TestBuildahHasNoPowersOverTheNode(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	for _, host := range []bool{true, false} {
		c := pipeline.BuilderOf(&img.Spec).Render(img, &pipeline.Options{HostModules: host}).Containers[0]
		s := c.SecurityContext
		if diff := cmp.Diff(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SETFCAP", "SETGID", "SETUID"}}, s.Capabilities); diff != "" {
			t.Error(diff)
		}
		if ptr.Deref(s.AllowPrivilegeEscalation, true) || s.Privileged != nil || (s.SeccompProfile != nil) != host || (s.AppArmorProfile != nil) != host {
			t.Errorf("with the host's modules %t: %+v", host, s)
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "environment" && m.MountPath == "/etc/containers/registries.conf.d"
		}) {
			t.Errorf("mirrors are not where Buildah reads them: %+v", c.VolumeMounts)
		}
		if !strings.Contains(c.Args[1], `--root "$DROVER_WORK/storage"`) {
			t.Error("layers are kept outside of the pod's volumes")
		}
	}
}

// TestLayersAreMountedWithinARegistry: what an unsigned image in another repository of the same registry has is not sent again.
func TestLayersAreMountedWithinARegistry(t *testing.T) {
	for unsigned, want := range map[string]bool{"r.example/unsigned:1": true, "other.example/unsigned:1": false, "": false} {
		j := job(t, signing, func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = unsigned })
		if args := j.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--mount-from") != want {
			t.Errorf("%q: %v", unsigned, args)
		}
	}
}

// TestFailuresTellWhy: the step, and the line of the compiler.
func TestFailuresTellWhy(t *testing.T) {
	img := image(t, module(compiling, signing), nil, "")
	ended := func(name string, code int32, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}
	}
	for name, tc := range map[string]struct {
		given  []corev1.ContainerStatus
		reason string
		says   string
	}{
		"compiler": {
			given:  []corev1.ContainerStatus{ended("check", 0, `{"step":"check","state":"Missing"}`), ended("build", 2, "CC m.o\nm.c:3:1: error: expected ';'\nmake: *** [m.o] Error 1\n")},
			reason: v1beta1.ReasonBuildFailed, says: "m.c:3:1: error: expected ';'",
		},
		"signer":   {given: []corev1.ContainerStatus{ended("sign", 1, `{"step":"sign","error":"the key does not belong to the certificate"}`)}, reason: v1beta1.ReasonSignFailed, says: "the key does not belong"},
		"registry": {given: []corev1.ContainerStatus{ended("check", 1, `{"step":"check","error":"401"}`)}, reason: v1beta1.ReasonCheckFailed, says: "401"},
		"push":     {given: []corev1.ContainerStatus{ended("push", 1, "plain text error\n")}, reason: v1beta1.ReasonPushFailed, says: "plain text error"},
	} {
		t.Run(name, func(t *testing.T) {
			j := pipeline.Job(img, 1, "New", options())
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: j.Name}}, Status: corev1.PodStatus{
				Phase: corev1.PodFailed, InitContainerStatuses: tc.given,
			}}
			runs := pipeline.Runs(&img.Spec, []batchv1.Job{*j}, []corev1.Pod{pod})
			if r := runs[0]; !r.Failed || r.Told.Reason != tc.reason || !strings.Contains(r.Told.Message, tc.says) {
				t.Errorf("%+v", runs[0])
			}
		})
	}
}

// TestLocalBuildIsTheSame: a build on this machine has the arguments of the Job's.
func TestLocalBuildIsTheSame(t *testing.T) {
	img := image(t, module(), configMap("FROM a"), "b@1")
	local := pipeline.BuilderOf(&img.Spec).Local(img, pipeline.Dirs{Layout: "/l", Work: "/w", Source: "/s"})
	rendered := pipeline.BuilderOf(&img.Spec).Render(img, &pipeline.Options{}).Containers[0].Args
	if diff := cmp.Diff(rendered[4:], local.Args[6:]); diff == "" || len(local.Args) < 10 {
		text, _ := json.Marshal(local)
		t.Errorf("the local build has the directories of the Job's, or no arguments: %s", text)
	}
	if diff := cmp.Diff(rendered[5:], local.Args[6:]); diff != "" {
		t.Error(diff)
	}
}
