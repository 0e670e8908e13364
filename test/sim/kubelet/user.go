// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/agent/host"
)

// userLabel is on pods of people.
const userLabel = "sim.example/user"

// IsUser says whether a pod is one of people, which may use a kernel module.
func IsUser(pod *corev1.Pod) bool { return pod != nil && pod.Labels[userLabel] != "" }

// Use has people's pod on the node open a kernel module, or close it. Without such a pod, it is
// made.
func (k *Kubelet) Use(ctx context.Context, namespace, module string, on bool) {
	at := slices.IndexFunc(k.Pods(), IsUser)
	if at < 0 {
		k.comes(ctx, namespace, "user-"+k.Node)
		at = slices.IndexFunc(k.Pods(), IsUser)
	}
	pod := k.Pods()[at]
	u := host.User{Kind: host.UserProcess, Name: "main", Pod: pod.Namespace + "/" + pod.Name, PodUID: string(pod.UID)}
	switch {
	case !on:
		k.close(pod.UID)
	case k.users[pod.UID] == "" && pod.DeletionTimestamp == nil && k.Kernel.HoldBy(module, u) == nil:
		if k.users == nil {
			k.users = map[types.UID]string{}
		}
		k.users[pod.UID] = module
		k.Trace("      %s: %s opens %s", k.Node, u.Pod, module)
	}
}

// user does the next thing for a pod of people: one that is deleted ends, and another comes under
// its name, as a StatefulSet's does. It has nothing open.
func (k *Kubelet) user(ctx context.Context, pod *corev1.Pod) (did, more bool) {
	if pod.DeletionTimestamp == nil {
		return false, false
	}
	k.close(pod.UID)
	k.end(ctx, pod)
	k.comes(ctx, pod.Namespace, pod.Name)
	return true, false
}

// comes makes a pod of people.
func (k *Kubelet) comes(ctx context.Context, namespace, name string) {
	must(k.Cluster.Admin.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{userLabel: "yes"}},
		Spec:       corev1.PodSpec{NodeName: k.Node, Containers: []corev1.Container{{Name: "main", Image: "registry.example/user:1"}}}}))
}

// Leave has people's pods close what they have open.
func (k *Kubelet) Leave() {
	for _, uid := range slices.Sorted(maps.Keys(k.users)) {
		k.close(uid)
	}
}

// close closes what a pod of people has open.
func (k *Kubelet) close(uid types.UID) {
	if module := k.users[uid]; module != "" {
		LetGo(k.Kernel, module, func(u host.User) bool { return u.PodUID == string(uid) })
		k.Trace("      %s: pod %s closes %s", k.Node, uid, module)
		delete(k.users, uid)
	}
}
