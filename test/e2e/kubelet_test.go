// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// builderNode is where the pods of Jobs run: the only node of its processor, for kwok plays the
	// pods of hollow nodes, and never ends them.
	builderNode = "e2e-builder"
	builderArch = "arm64"
	// signerImage is the operator's --signer-image.
	signerImage = "registry.invalid/drover/drover-signer:dev"

	heartbeat   = 10 * time.Second
	messageSize = 2048
)

// kubelet is one for the pods of Jobs. Each container is a process on this machine, with the
// command and the environment that its pod names, and folders for its volumes: paths in them are
// told as what is mounted there. The image of drover-signer is the real program; of other images,
// which bring a toolchain, this machine has the shell.
type kubelet struct {
	client client.Client
	signer string
	dir    string

	// pods that were started, and how to end each. Only sync knows them.
	pods map[types.UID]context.CancelFunc
	runs sync.WaitGroup
}

// startKubelet registers the node and serves it until the test ends.
func (s *scenario) startKubelet(signer string) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	k := &kubelet{client: shared.Admin, signer: signer, dir: s.TempDir(), pods: map[types.UID]context.CancelFunc{}}
	s.Cleanup(func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: builderNode}}
		s.must(client.IgnoreNotFound(shared.Admin.Delete(context.WithoutCancel(s.Context()), node)))
	})
	s.must(k.register(ctx))
	failed := make(chan error, 2)
	serve := func(every time.Duration, do func(context.Context) error) {
		failed <- wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
			err := do(ctx)
			if ctx.Err() != nil {
				return false, nil
			}
			return false, err
		})
	}
	go serve(heartbeat, k.beat)
	go serve(pace, k.sync)
	s.Cleanup(func() {
		cancel()
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, context.Canceled) {
				s.Errorf("the kubelet: %v", err)
			}
		}
		k.runs.Wait()
	})
}

func (k *kubelet) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: builderNode, Labels: map[string]string{
		corev1.LabelHostname: builderNode, corev1.LabelOSStable: "linux", corev1.LabelArchStable: builderArch,
	}}}
	if err := k.client.Create(ctx, node); err != nil {
		return err
	}
	before, now := node.DeepCopy(), metav1.Now()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: builderArch, KernelVersion: "6.1.0-44-" + builderArch,
			BootID: "builder"},
	}
	return k.client.Status().Patch(ctx, node, client.MergeFrom(before))
}

// beat keeps the node from being taken for dead.
func (k *kubelet) beat(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: builderNode}}
	err := k.client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(builderNode), ptr.To[int32](40)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if err != nil {
		return k.client.Create(ctx, lease)
	}
	return k.client.Update(ctx, lease)
}

// sync starts what is new, and ends what is to go.
func (k *kubelet) sync(ctx context.Context) error {
	var pods corev1.PodList
	if err := k.client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": builderNode}); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		end, known := k.pods[pod.UID]
		switch {
		case pod.DeletionTimestamp != nil:
			if known {
				end()
			}
			gone := client.Preconditions{UID: &pod.UID}
			if err := k.client.Delete(ctx, pod, client.GracePeriodSeconds(0), gone); client.IgnoreNotFound(err) != nil {
				return err
			}
		case !known && pod.Status.Phase == corev1.PodPending:
			life, end := context.WithCancel(ctx)
			k.pods[pod.UID] = end
			k.runs.Go(func() { k.run(life, pod) })
		}
	}
	return nil
}

// run takes a pod to its end, and says what came of it.
func (k *kubelet) run(ctx context.Context, pod *corev1.Pod) {
	before := pod.DeepCopy()
	status := &pod.Status
	status.Phase, status.StartTime = corev1.PodSucceeded, ptr.To(metav1.Now())
	folders, err := k.volumes(ctx, pod)
	if err != nil {
		status.Phase, status.Reason, status.Message = corev1.PodFailed, "FailedMount", err.Error()
	}
	each := func(containers []corev1.Container) (all []corev1.ContainerStatus) {
		for i := range containers {
			c := &containers[i]
			one := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"},
			}}
			if status.Phase != corev1.PodFailed {
				ended := k.process(ctx, pod, c, folders)
				one.State = corev1.ContainerState{Terminated: ended}
				if ended.ExitCode != 0 {
					status.Phase = corev1.PodFailed
				}
			}
			all = append(all, one)
		}
		return all
	}
	status.InitContainerStatuses = each(pod.Spec.InitContainers)
	status.ContainerStatuses = each(pod.Spec.Containers)
	if ctx.Err() != nil {
		return // it was deleted, or the test is over
	}
	if err := k.client.Status().Patch(ctx, pod, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fmt.Printf("e2e: the end of pod %s/%s cannot be told: %v\n", pod.Namespace, pod.Name, err)
	}
}

// volumes makes a folder for each.
func (k *kubelet) volumes(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	folders := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		folder := filepath.Join(k.dir, string(pod.UID), v.Name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		folders[v.Name] = folder
		files, err := k.files(ctx, pod.Namespace, &v)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
				return nil, err
			}
		}
	}
	return folders, nil
}

// files are what a volume begins with.
func (k *kubelet) files(ctx context.Context, namespace string, v *corev1.Volume) (map[string][]byte, error) {
	files := map[string][]byte{}
	switch {
	case v.EmptyDir != nil:
		return files, nil
	case v.ConfigMap != nil:
		from := &corev1.ConfigMap{}
		err := k.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v.ConfigMap.Name}, from)
		if apierrors.IsNotFound(err) && ptr.Deref(v.ConfigMap.Optional, false) {
			return files, nil
		}
		for name, text := range from.Data {
			files[name] = []byte(text)
		}
		return files, err
	case v.Secret != nil:
		from := &corev1.Secret{}
		err := k.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v.Secret.SecretName}, from)
		if apierrors.IsNotFound(err) && ptr.Deref(v.Secret.Optional, false) {
			return files, nil
		}
		for _, item := range v.Secret.Items {
			files[item.Path] = from.Data[item.Key]
		}
		return files, err
	}
	return nil, errors.New("this kubelet does not know its kind")
}

// process runs a container.
func (k *kubelet) process(ctx context.Context, pod *corev1.Pod, c *corev1.Container,
	folders map[string]string) *corev1.ContainerStateTerminated {
	inside := func(texts ...string) []string {
		texts = slices.Clone(texts)
		for i := range texts {
			texts[i] = onMachine(texts[i], c.VolumeMounts, folders)
		}
		return texts
	}
	line := inside(slices.Concat(c.Command, c.Args)...)
	message := filepath.Join(k.dir, string(pod.UID), c.Name+".message")
	if c.Image == signerImage {
		line = append(slices.Insert(line, 0, k.signer), "--termination-message", message)
	}
	began := metav1.Now()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = onMachine(c.WorkingDir, c.VolumeMounts, folders), &out, &out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, env := range c.Env {
		if env.ValueFrom == nil { // what is taken from elsewhere is optional, and not there
			cmd.Env = append(cmd.Env, env.Name+"="+inside(env.Value)[0])
		}
	}
	err := cmd.Run()
	ended := &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: began, FinishedAt: metav1.Now()}
	if err != nil {
		ended.Reason, ended.ExitCode = "Error", 1
		if cmd.ProcessState == nil {
			fmt.Fprintln(&out, err) // it did not start
		}
	}
	said, readErr := os.ReadFile(message)
	if ended.Message = string(said); readErr != nil && err != nil {
		ended.Message = out.String()[max(0, out.Len()-messageSize):] // FallbackToLogsOnError
	}
	return ended
}

// onMachine is a path in a container as it is on this machine. Other text is returned as it is.
func onMachine(text string, mounts []corev1.VolumeMount, folders map[string]string) string {
	best := ""
	var folder string
	for _, m := range mounts {
		if len(m.MountPath) > len(best) && (text == m.MountPath || strings.HasPrefix(text, m.MountPath+"/")) {
			best, folder = m.MountPath, folders[m.Name]
		}
	}
	return folder + strings.TrimPrefix(text, best)
}
