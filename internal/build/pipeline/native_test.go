// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// fetching is a Job for nodes that mount no images.
func fetching(t *testing.T, change ...func(*v1beta1.Module)) *batchv1.Job {
	t.Helper()
	o := options()
	o.MountImages = false
	return pipeline.Job(image(t, module(change...), configMap("FROM a"), o.BuildahImage), 1, "New", o)
}

// imagesOf a pod's volumes.
func imagesOf(pod *corev1.PodSpec) map[string]string {
	images := map[string]string{}
	for _, v := range pod.Volumes {
		if v.Image != nil {
			images[v.Name] = v.Image.Reference
		}
	}
	return images
}

// TestImagesAreMounted where nodes can.
func TestImagesAreMounted(t *testing.T) {
	pod := job(t, compiling).Spec.Template.Spec
	if diff := cmp.Diff(map[string]string{"headers": "r/headers:" + kernelVersion, "source": "r/src:1"}, imagesOf(&pod)); diff != "" {
		t.Error(diff)
	}
}

// TestImagesAreFetched where nodes may not mount them: by steps of ours, with the credentials and
// the TLS of the build, into folders that the compiler cannot write.
func TestImagesAreFetched(t *testing.T) {
	pod := fetching(t, compiling, func(m *v1beta1.Module) { container(m).Build.BaseImageRegistryTLS.Insecure = true }).Spec.Template.Spec
	if images := imagesOf(&pod); len(images) > 0 {
		t.Errorf("image volumes %v", images)
	}
	if diff := cmp.Diff([]string{"check", "fetch-headers", "fetch-source", "build", "pack", "push"}, steps(&pod)); diff != "" {
		t.Fatal(diff)
	}
	compile := pod.InitContainers[3]
	for i, want := range []struct{ volume, image, dir string }{{"headers", "r/headers:" + kernelVersion, "/headers"},
		{"source", "r/src:1", "/source"}} {
		c := pod.InitContainers[i+1]
		args := strings.Join(c.Args, " ") + " "
		for _, arg := range []string{"fetch --image " + want.image, "--to " + want.dir, "--arch amd64", "--insecure",
			"--auth /drover/auth/repo/config.json", "--state "} {
			if !strings.Contains(args, arg) {
				t.Errorf("%s: no %q in %q", c.Name, arg, args)
			}
		}
		if c.Image != options().SignerImage {
			t.Errorf("%s runs %s", c.Name, c.Image)
		}
		written := corev1.VolumeMount{Name: want.volume, MountPath: want.dir}
		read := corev1.VolumeMount{Name: want.volume, MountPath: want.dir, ReadOnly: true}
		mounts := func(c *corev1.Container, want corev1.VolumeMount) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, want) })
		}
		if !mounts(&c, written) || !mounts(&compile, read) {
			t.Errorf("%s mounts %v, build %v", c.Name, c.VolumeMounts, compile.VolumeMounts)
		}
	}
}

// TestWhereImagesAreMounted: on each node that the Job may come to, or on none.
func TestWhereImagesAreMounted(t *testing.T) {
	node := func(kubelet string, more ...string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}}}
		for i := 0; i+1 < len(more); i += 2 {
			n.Labels[more[i]] = more[i+1]
		}
		n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: kubelet, ContainerRuntimeVersion: "containerd://2.1.4"}
		return n
	}
	chosen := func(m *v1beta1.Module) { container(m).Build.Selector = map[string]string{"builds": "here"} }
	for name, tc := range map[string]struct {
		mode  delivery.Mode
		given func(*v1beta1.Module)
		nodes []corev1.Node
		then  bool
	}{
		"all can":                       {nodes: []corev1.Node{node("v1.35.0"), node("v1.36.1")}, then: true},
		"one cannot":                    {nodes: []corev1.Node{node("v1.35.0"), node("v1.34.3")}},
		"it is of another architecture": {nodes: []corev1.Node{node("v1.35.0"), node("v1.34.3", corev1.LabelArchStable, "arm64")}, then: true},
		"builds are not for it":         {given: chosen, nodes: []corev1.Node{node("v1.35.0", "builds", "here"), node("v1.34.3")}, then: true},
		"builds are for it":             {given: chosen, nodes: []corev1.Node{node("v1.35.0"), node("v1.34.3", "builds", "here")}},
		"no node":                       {given: chosen, nodes: []corev1.Node{node("v1.35.0")}},
		"forced to":                     {mode: delivery.ModeImageVolume, nodes: []corev1.Node{node("v1.31.0")}, then: true},
		"forced not to":                 {mode: delivery.ModeInitContainer, nodes: []corev1.Node{node("v1.36.0")}},
		"a Dockerfile, which has none": {
			given: func(m *v1beta1.Module) { container(m).Build = &v1beta1.Build{DockerfileConfigMap: ref("dockerfile")} },
			nodes: []corev1.Node{node("v1.36.0")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := module(compiling)
			if tc.given != nil {
				tc.given(m)
			}
			spec, err := declare(t, m, kernelVersion)
			if err != nil {
				t.Fatal(err)
			}
			if got := pipeline.MountsImages(spec, &pipeline.Options{Delivery: tc.mode}, tc.nodes); got != tc.then {
				t.Errorf("image volumes: %t", got)
			}
		})
	}
}

// TestAPIServerKeepsTheVolumes of a Job for nodes of its own release: one that knows no image
// volumes drops them, and their mounts, without a word.
func TestAPIServerKeepsTheVolumes(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	made := fetching(t, compiling, signing)
	made.Namespace, made.OwnerReferences = e.ModuleNamespace(t), nil
	want := made.Spec.Template.Spec.DeepCopy()
	if err := admin.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	got := made.Spec.Template.Spec
	names := func(pod *corev1.PodSpec) (all []string) {
		for _, v := range pod.Volumes {
			all = append(all, v.Name)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, m := range c.VolumeMounts {
				all = append(all, c.Name+" "+m.Name)
			}
		}
		return all
	}
	if diff := cmp.Diff(names(want), names(&got)); diff != "" {
		t.Error(diff)
	}
}
