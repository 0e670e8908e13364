// SPDX-License-Identifier: Apache-2.0

package devcluster_test

import (
	"context"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// Pods of a DaemonSet become ready on hollow nodes and go when it is deleted;
// carriers, other nodes' pods and the nodes themselves are left alone.
func TestKwokPlaysPodsOnHollowNodesOnly(t *testing.T) {
	c := start(t, devcluster.Options{WithKwok: true})
	set := client(t, c, func(*rest.Config) {})
	hollow := []string{"hollow-1", "hollow-2", "hollow-3"}
	made := map[string]*corev1.Node{}
	for _, name := range hollow {
		made[name] = createNode(t, set, name, map[string]string{"drover.dev/hollow": "true"})
	}
	made["real"] = createNode(t, set, "real", nil)
	createPod(t, set, "carrier", "hollow-1", map[string]string{"drover.dev/carrier": ""})
	createPod(t, set, "elsewhere", "real", nil)

	sets := set.AppsV1().DaemonSets("default")
	if _, err := sets.Create(t.Context(), daemonSet(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods of the DaemonSet are available", func(ctx context.Context) (bool, error) {
		d, err := sets.Get(ctx, "d", metav1.GetOptions{})
		return err == nil && int(d.Status.NumberAvailable) == len(hollow), err
	})
	if err := sets.Delete(t.Context(), "d", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var left *corev1.PodList
	eventually(t, "the DaemonSet's pods are gone", func(ctx context.Context) (done bool, err error) {
		left, err = set.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 2, err
	})
	for _, pod := range left.Items {
		if pod.Status.Phase != corev1.PodPending || len(pod.Status.ContainerStatuses) != 0 {
			t.Errorf("kwok touched pod %s: %v", pod.Name, pod.Status)
		}
	}
	assertUntouched(t, set, made)
}

func assertUntouched(t *testing.T, set kubernetes.Interface, made map[string]*corev1.Node) {
	t.Helper()
	for name, was := range maps.All(made) {
		is, err := set.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// Taints and heartbeats are the node controller's.
		if !equality.Semantic.DeepEqual(was.Status.Capacity, is.Status.Capacity) || is.Status.NodeInfo != was.Status.NodeInfo ||
			len(is.Status.Addresses) != 0 {
			t.Errorf("kwok touched the status of node %s: %v", name, is.Status)
		}
	}
	leases, err := set.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) != 0 {
		t.Errorf("kwok made leases for nodes: %v", leases.Items)
	}
}

func createNode(t *testing.T, set kubernetes.Interface, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	node, err := set.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func createPod(t *testing.T, set kubernetes.Interface, name, node string, labels map[string]string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: podSpec()}
	pod.Spec.NodeName = node
	if _, err := set.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		// Nodes without conditions are tainted.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		InitContainers: []corev1.Container{
			{Name: "first", Image: "example.invalid/first"},
			{Name: "beside", Image: "example.invalid/beside", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		},
		Containers: []corev1.Container{{Name: "main", Image: "example.invalid/main"}},
	}
}

func daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "d"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: withSelector(podSpec())},
		},
	}
}

func withSelector(spec corev1.PodSpec) corev1.PodSpec {
	spec.NodeSelector = map[string]string{"drover.dev/hollow": "true"}
	return spec
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, condition); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}
