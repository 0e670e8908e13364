// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	floorReady  = "floor.example.com/ready"
	floorPlugin = "floor.example.com/plugin"
)

// floor makes the same kinds and number of writes per node as Drover does, as small as they can be:
// a pod is created, an object applied, its status applied, the node labelled, the pod deleted; a
// DaemonSet follows the label and the node is labelled again. The operator is stopped. Nothing is
// awaited but the DaemonSet's pods, which the same DaemonSet controller makes.
func (b *bench) floor(ctx context.Context) error {
	config := *b.f.AdminConfig
	config.UserAgent = "floor/1"
	c, err := client.NewWithWatch(&config, client.Options{Scheme: b.f.Admin.Scheme()})
	if err != nil {
		return fmt.Errorf("connect for the floor: %w", err)
	}
	if err := b.openForFloor(ctx, c); err != nil {
		return err
	}
	nodes, err := b.f.Truth(ctx)
	if err != nil {
		return err
	}
	if _, err := b.log.Next(); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.Create(ctx, floorDaemonSet()); err != nil {
		return fmt.Errorf("create the floor's DaemonSet: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return labelPlugins(ctx, c, len(nodes)) })
	group.Go(func() error { return writeAll(ctx, c, nodes) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("measure the floor: %w", err)
	}
	b.result.FloorSeconds = seconds(begin)
	b.result.RatioToFloor = b.result.Seconds / b.result.FloorSeconds
	requests, err := b.log.Next()
	if err != nil {
		return err
	}
	writes := 0
	for _, r := range requests {
		if r.UserAgent == "floor/1" && r.IsWrite() {
			writes++
		}
	}
	b.result.FloorWritesPerNode = float64(writes) / float64(len(nodes))
	b.say("floor: %.1f s, %.2f writes per node", b.result.FloorSeconds, b.result.FloorWritesPerNode)
	return nil
}

// openForFloor takes away the policy about who writes a status.
func (b *bench) openForFloor(ctx context.Context, c client.Client) error {
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "drover-agent-status"}}
	if err := c.Delete(ctx, binding); err != nil {
		return fmt.Errorf("take away the policy drover-agent-status: %w", err)
	}
	probe := fleet.NodeTruth{Name: "probe"}
	if err := applyRaw(ctx, c, probe.Name, floorOrder(probe), ""); err != nil {
		return err
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = applyRaw(ctx, c, probe.Name, floorStatus(probe), "status")
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the policy drover-agent-status is gone: %w: %w", err, last)
	}
	return nil
}

func floorOrder(n fleet.NodeTruth) string {
	return fmt.Sprintf(`{"apiVersion":"kmm.sigs.x-k8s.io/v1beta1","kind":"NodeModulesConfig","metadata":{"name":"floor-%s"},"spec":{"modules":[{"namespace":"floor","name":"m","serviceAccountName":"default","config":{"kernelVersion":%q,"containerImage":"floor:1","insecurePull":false,"modprobe":{"moduleName":"m"}}}]}}`, n.Name, n.Kernel)
}

func floorStatus(n fleet.NodeTruth) string {
	return fmt.Sprintf(`{"apiVersion":"kmm.sigs.x-k8s.io/v1beta1","kind":"NodeModulesConfig","metadata":{"name":"floor-%s"},"status":{"modules":[{"namespace":"floor","name":"m","serviceAccountName":"default","bootId":%q}]}}`, n.Name, n.BootID)
}

func writeAll(ctx context.Context, c client.Client, nodes []fleet.NodeTruth) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, n := range nodes {
		group.Go(func() error { return writeNode(ctx, c, n) })
	}
	return group.Wait()
}

func writeNode(ctx context.Context, c client.Client, n fleet.NodeTruth) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "floor-" + n.Name},
		Spec:       corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "floor:1"}}},
	}
	if err := c.Create(ctx, pod); err != nil {
		return fmt.Errorf("create a pod: %w", err)
	}
	if err := applyRaw(ctx, c, n.Name, floorOrder(n), ""); err != nil {
		return err
	}
	if err := applyRaw(ctx, c, n.Name, floorStatus(n), "status"); err != nil {
		return err
	}
	if err := label(ctx, c, n.Name, floorReady); err != nil {
		return err
	}
	if err := c.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("delete a pod: %w", err)
	}
	return nil
}

func applyRaw(ctx context.Context, c client.Client, node, body, subresource string) error {
	o := floorConfig(node)
	patch := client.RawPatch("application/apply-patch+yaml", []byte(body))
	var err error
	if subresource == "" {
		err = c.Patch(ctx, o, patch, client.FieldOwner("floor"), client.ForceOwnership)
	} else {
		err = c.SubResource(subresource).Patch(ctx, o, patch, client.FieldOwner("floor"), client.ForceOwnership)
	}
	if err != nil {
		return fmt.Errorf("apply an object: %w", err)
	}
	return nil
}

func floorConfig(node string) client.Object {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "floor-" + node}}
	o.APIVersion, o.Kind = "kmm.sigs.x-k8s.io/v1beta1", "NodeModulesConfig"
	return o
}

func label(ctx context.Context, c client.Client, node, key string) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, key)))
	if err := c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
		return fmt.Errorf("label a node: %w", err)
	}
	return nil
}

func floorDaemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "floor-plugin"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "floor-plugin"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{floorReady: ""},
					Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:   []corev1.Container{{Name: "c", Image: "floor:1"}},
				},
			},
		},
	}
}

// labelPlugins labels each node whose plugin pod is ready, until all are. The watch is an
// informer's: it goes on where an API server ends it, as one does on a busy machine when a client
// reads too slowly.
func labelPlugins(ctx context.Context, c client.WithWatch, nodes int) error {
	plugins := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{"app": "floor-plugin"}}
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			pods := &corev1.PodList{}
			return pods, c.List(ctx, pods, append(plugins, &client.ListOptions{Raw: &options})...)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &corev1.PodList{}, append(plugins, &client.ListOptions{Raw: &options})...)
		},
	}
	group, labelling := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	seen := map[string]bool{}
	_, err := watchtools.UntilWithSync(labelling, cache.ToListWatcherWithWatchListSemantics(from, c), &corev1.Pod{}, nil,
		func(e watch.Event) (bool, error) {
			pod, isPod := e.Object.(*corev1.Pod)
			if !isPod || e.Type == watch.Deleted || seen[pod.Spec.NodeName] || !ready(pod) {
				return false, nil
			}
			seen[pod.Spec.NodeName] = true
			node := pod.Spec.NodeName
			group.Go(func() error { return label(labelling, c, node, floorPlugin) })
			return len(seen) == nodes, nil
		})
	if failed := group.Wait(); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("%d of %d plugin pods were ready: %w", len(seen), nodes, err)
	}
	return nil
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
