// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/kmodbuild"
	"github.com/drover-project/drover/test/vm/registry"
)

const namespace = "default"

// Images of this test.
const (
	toolsImage  = registry.Host + "/smoke/tools:1"
	dataImage   = registry.Host + "/smoke/data:1"
	moduleImage = registry.Host + "/smoke/v4l2loopback:1"
)

// askServer says "reached" when the API server answers at the kubernetes
// Service's address. It speaks plain HTTP, as busybox cannot do the server's
// TLS: the server's refusal proves as much.
const askServer = `printf 'GET / HTTP/1.0\r\n\r\n' | busybox nc -w 3 10.0.0.1 443 | busybox grep -q '^HTTP.* 400' && echo reached || echo cut off`

// greeting is what the data image holds.
const greeting = "hello from an image volume"

func (s *smoke) startRegistry(ctx context.Context) (err error) {
	if s.registry, err = registry.Start(); err != nil {
		return err
	}
	if err := s.registry.PushPause(ctx, s.images.Pause); err != nil {
		return err
	}
	shell, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("read busybox: %w", err)
	}
	if err := s.push(ctx, "smoke/tools:1", map[string]registry.File{"/bin/busybox": registry.Program(shell)}); err != nil {
		return err
	}
	return s.push(ctx, "smoke/data:1", map[string]registry.File{"/data/greeting": {Content: []byte(greeting)}})
}

func (s *smoke) push(ctx context.Context, repository string, files map[string]registry.File) error {
	image, err := registry.Image(registry.Spec{Files: files, User: "65532"})
	if err != nil {
		return err
	}
	_, _, err = s.registry.Push(ctx, repository, image)
	return err
}

// runPod runs an unprivileged pod that reaches the API server by the
// kubernetes Service, and reads its log through the API server.
func (s *smoke) runPod(ctx context.Context) error {
	pod := shellPod("hello", "busybox id -u; "+askServer)
	output, err := s.finish(ctx, pod)
	if err != nil {
		return err
	}
	if output != "65532\nreached\n" {
		return fmt.Errorf("unexpected output: %s", output)
	}
	return nil
}

// execute runs a command in a running pod, by kubectl as a user would: API
// server, kubelet and containerd all have a part in the stream.
func (s *smoke) execute(ctx context.Context) error {
	assets, err := devcluster.Assets(ctx)
	if err != nil {
		return err
	}
	pod := shellPod("sleeper", "busybox sleep 600")
	grace := int64(0)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	if _, err := s.until(ctx, pod, corev1.PodRunning, corev1.PodFailed); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, filepath.Join(assets, "kubectl"), "--kubeconfig", s.cluster.Kubeconfig,
		"exec", pod.Name, "--", "/bin/busybox", "hostname").CombinedOutput()
	if err != nil {
		return fmt.Errorf("exec: %w: %s", err, output)
	}
	if string(output) != pod.Name+"\n" {
		return fmt.Errorf("exec gives %q", output)
	}
	if err := s.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod: %w", err)
	}
	return nil
}

// mountImage runs a pod with an image as a volume.
func (s *smoke) mountImage(ctx context.Context) error {
	pod := shellPod("image-volume", "busybox cat /image/data/greeting")
	addImage(pod, dataImage)
	output, err := s.finish(ctx, pod)
	if err != nil {
		return err
	}
	if output != greeting {
		return fmt.Errorf("unexpected output: %q", output)
	}
	return nil
}

// loadModule compiles third-party code, and loads it by a privileged pod after
// the in-tree modules it needs. The kernel itself is asked for the result.
func (s *smoke) loadModule(ctx context.Context) error {
	source, err := s.cache.V4L2Loopback(ctx)
	if err != nil {
		return err
	}
	built, err := kmodbuild.Build(ctx, s.cache, s.images.Kernels[artifacts.Linux61], source)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(built["v4l2loopback"])
	if err != nil {
		return fmt.Errorf("read the module: %w", err)
	}
	if err := s.push(ctx, "smoke/v4l2loopback:1", map[string]registry.File{"/v4l2loopback.ko": {Content: content}}); err != nil {
		return err
	}
	pod := shellPod("load", "busybox modprobe videodev && busybox insmod /image/v4l2loopback.ko devices=2")
	addImage(pod, moduleImage)
	privileged, root := true, int64(0)
	container := &pod.Spec.Containers[0]
	container.SecurityContext = &corev1.SecurityContext{Privileged: &privileged, RunAsUser: &root}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "modules", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/lib/modules"}}})
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "modules", MountPath: "/lib/modules", ReadOnly: true})
	if _, err := s.finish(ctx, pod); err != nil {
		return err
	}
	seen, err := s.nodes[artifacts.Linux61].Output(ctx, "grep -c '^v4l2loopback ' /proc/modules; ls /dev/video0 /dev/video1")
	if err != nil {
		return err
	}
	if seen != "1\n/dev/video0\n/dev/video1" {
		return fmt.Errorf("the kernel says %q", seen)
	}
	return nil
}

// shellPod is an unprivileged pod on the 6.1 node that runs a line of shell.
func shellPod(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName:      nodeName(artifacts.Linux61),
			RestartPolicy: corev1.RestartPolicyNever,
			DNSPolicy:     corev1.DNSDefault,
			Containers: []corev1.Container{{
				Name: "main", Image: toolsImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Env:     []corev1.EnvVar{{Name: "PATH", Value: "/bin"}},
				Command: []string{"/bin/busybox", "sh", "-c", script},
			}},
		},
	}
}

func addImage(pod *corev1.Pod, reference string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "image", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: corev1.PullIfNotPresent}}})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "image", MountPath: "/image", ReadOnly: true})
}

// finish runs a pod to its end and returns its output.
func (s *smoke) finish(ctx context.Context, pod *corev1.Pod) (string, error) {
	last, err := s.until(ctx, pod, corev1.PodSucceeded, corev1.PodFailed)
	if err != nil {
		return "", err
	}
	output, err := s.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	if last.Status.Phase != corev1.PodSucceeded {
		return "", fmt.Errorf("pod %s failed: %s", pod.Name, output)
	}
	return string(output), nil
}

// until creates a pod and waits for one of the phases.
func (s *smoke) until(ctx context.Context, pod *corev1.Pod, phases ...corev1.PodPhase) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	pods := s.client.CoreV1().Pods(namespace)
	var last *corev1.Pod
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		found, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			// The namespace's ServiceAccount comes a moment after the namespace;
			// until then no pod may be created.
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsForbidden(err) {
				return false, fmt.Errorf("create pod: %w", err)
			}
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get pod: %w", err)
		}
		last = found
		return slices.Contains(phases, found.Status.Phase), nil
	})
	if err != nil {
		status := corev1.PodStatus{}
		if last != nil {
			status = last.Status
		}
		return nil, errors.Join(fmt.Errorf("wait for pod %s: %w: %v", pod.Name, err, status.ContainerStatuses), s.logs(s.nodes[artifacts.Linux61]))
	}
	return last, nil
}
