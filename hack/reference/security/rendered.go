// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// named is a pod and what people call it.
type named struct {
	name string
	pod  *corev1.PodSpec
}

const agentImage = "registry.invalid/drover/drover-agent:dev"

// rendered are the pods that Drover makes at run time, each by the code that makes it.
func rendered(root string) ([]named, error) {
	sample := &v1beta1.Module{}
	content, err := os.ReadFile(filepath.Join(root, "config/samples/module_sample.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the sample: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, sample); err != nil {
		return nil, fmt.Errorf("read the sample: %w", err)
	}
	pods := carriers(sample)
	workloads, err := workloadPods(sample)
	if err != nil {
		return nil, err
	}
	pods = append(append(pods, workloads...), builds()...)
	static, err := boot.Render(boot.PodOptions{
		NodeName: "node", Image: agentImage, HostRoot: "/host", StateDir: "/var/lib/drover", StatePath: "/var/lib/drover",
		FirmwareDir: "/var/lib/firmware", ManifestDir: "/host/etc/kubernetes/manifests",
	})
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(static, &pod); err != nil {
		return nil, fmt.Errorf("read the static pod: %w", err)
	}
	return append(pods, named{"static pod of `config/boot`", &pod.Spec}), nil
}

func carriers(module *v1beta1.Module) []named {
	var pods []named
	for _, way := range []struct {
		name string
		mode delivery.Mode
	}{{"carrier, image volume", delivery.ModeImageVolume}, {"carrier, init container", delivery.ModeInitContainer}} {
		pods = append(pods, named{way.name, &delivery.Carrier(&delivery.Request{
			Module: module, Config: &v1beta1.ModuleConfig{ContainerImage: "i"}, ID: "id", Node: "node", Mode: way.mode,
			User: ptr.To[int64](65532), AgentImage: agentImage,
		}).Spec})
	}
	return pods
}

// workloadPods are of Modules that say nothing about security, and of the sample, which does.
func workloadPods(sample *v1beta1.Module) ([]named, error) {
	bare := func(of v1beta1.ModuleSpec) *v1beta1.Module {
		of.ModuleLoader = sample.Spec.ModuleLoader
		m := &v1beta1.Module{Spec: of}
		m.Name, m.Namespace = "example", "default"
		return m
	}
	container := v1beta1.WorkloadContainer{Image: "i"}
	var pods []named
	for _, w := range []struct {
		name   string
		module *v1beta1.Module
	}{
		{"device plugin without a `securityContext`", bare(v1beta1.ModuleSpec{DevicePlugin: &v1beta1.DevicePluginSpec{Container: container}})},
		{"DRA driver without a `securityContext`", bare(v1beta1.ModuleSpec{DRA: &v1beta1.DRASpec{Container: container, DriverName: "d"}})},
		{"device plugin of `config/samples/module_sample.yaml`", sample},
	} {
		set, err := plugin.DaemonSet(w.module, agentImage)
		if err != nil {
			return nil, err
		}
		pods = append(pods, named{w.name, &set.Spec.Template.Spec})
	}
	return pods, nil
}

// builds are the Jobs that make images.
func builds() []named {
	native := &v1alpha1.ImageBuild{Native: &v1beta1.NativeBuild{
		ToolchainImage: "t", HeadersImage: "h", SourceImage: "s", Command: []string{"make"},
	}}
	dockerfile := &v1alpha1.ImageBuild{DockerfileConfigMap: "dockerfile", Builder: "b", Secrets: []string{"of-the-build"}}
	sign := &v1alpha1.ImageSign{KeySecret: "signing-key", CertSecret: "signing-certificate", Files: []string{"/opt/a.ko"}}
	var pods []named
	for _, b := range []struct {
		name  string
		build *v1alpha1.ImageBuild
		sign  *v1alpha1.ImageSign
		host  bool
	}{
		{"build from a Dockerfile", dockerfile, nil, true},
		{"build from a Dockerfile, `--build-host-modules=false`", dockerfile, nil, false},
		{"native build", native, nil, false},
		{"signing", nil, sign, false},
		{"build from a Dockerfile and signing", dockerfile, sign, true},
		{"native build and signing", native, sign, false},
	} {
		image := &v1alpha1.ModuleImage{Spec: v1alpha1.ModuleImageSpec{
			Module: "m", Image: "r/m:1", Architecture: "amd64", Build: b.build, Sign: b.sign,
			Selector:    map[string]string{"example.com/gpu": ""},
			RepoSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
		}}
		job := pipeline.Job(image, 1, "New", &pipeline.Options{
			SignerImage: "s", HostModules: b.host, MountImages: true, User: ptr.To[int64](65532),
		})
		pods = append(pods, named{b.name, &job.Spec.Template.Spec})
	}
	return pods
}
