// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/nodemarks"
)

// plugin is what a Module runs on nodes beside the kernel module, in one of the roles.
type plugin struct {
	role   string
	module types.NamespacedName
}

// label is the node label that says that the plugin is ready.
func (p plugin) label() string {
	if p.role == v1beta1.RoleDRA {
		return v1beta1.DRAReadyLabel(p.module.Namespace, p.module.Name)
	}
	return v1beta1.DevicePluginReadyLabel(p.module.Namespace, p.module.Name)
}

// readyPlugins are those that have a ready pod on the node. busy tells which Modules have any pod
// there, until it is gone.
func readyPlugins(ctx context.Context, c client.Reader, node string) (ready []plugin, busy func(types.NamespacedName) bool, err error) {
	var pods corev1.PodList
	err = c.List(ctx, &pods, client.MatchingFields{pluginNodeIndex: node},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, nil, fmt.Errorf("list plugin pods: %w", err)
	}
	there, made := map[types.NamespacedName]bool{}, makers{}
	for i := range pods.Items {
		there[watch.ModuleOf(&pods.Items[i])] = true
		isReady, err := made.ready(ctx, c, &pods.Items[i])
		if err != nil {
			return nil, nil, err
		}
		if isReady {
			ready = append(ready, plugin{role: roleOf(&pods.Items[i]), module: watch.ModuleOf(&pods.Items[i])})
		}
	}
	return ready, func(module types.NamespacedName) bool { return there[module] }, nil
}

// makers are the roles of the DaemonSets that made pods, by Module and owner: many pods have the
// same. Empty: it is no DaemonSet of the Module.
type makers map[maker]string

type maker struct {
	module     types.NamespacedName
	kind, name string
	uid        types.UID
}

// ready is true for a ready pod that a DaemonSet of the Module made in that role.
func (m makers) ready(ctx context.Context, c client.Reader, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !podReady(pod) {
		return false, nil
	}
	by := maker{module: watch.ModuleOf(pod), kind: owner.Kind, name: owner.Name, uid: owner.UID}
	role, known := m[by]
	if !known {
		daemonSet, err := kube.DaemonSetOf(ctx, c, pod, by.module, &v1beta1.Module{})
		if err != nil {
			return false, err
		}
		if daemonSet != nil {
			role = roleOf(daemonSet)
		}
		m[by] = role
	}
	return role != "" && role == roleOf(pod), nil
}

// pluginNode is the index of plugin pods by node.
func pluginNode(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || !isPlugin(pod) || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// isPlugin is true for what looks like a part of a Module's device plugin or DRA driver.
func isPlugin(object client.Object) bool {
	role := roleOf(object)
	return (role == v1beta1.RoleDevicePlugin || role == v1beta1.RoleDRA) && object.GetLabels()[v1beta1.ModuleNameLabel] != ""
}

func roleOf(object client.Object) string { return object.GetLabels()[v1beta1.RoleLabel] }

// podReady is true for a running pod that is ready and not about to go.
func podReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeOfPlugin(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, node := range pluginNode(object) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	}
	return requests
}

// nodesOfDaemonSet are the nodes of its pods: a pod can come into the cache before its DaemonSet
// does.
func (l *labeler) nodesOfDaemonSet(ctx context.Context, object client.Object) []reconcile.Request {
	if !isPlugin(object) {
		return nil
	}
	var requests []reconcile.Request
	watch.Each(ctx, l.client, &corev1.PodList{}, func(pod *corev1.Pod) {
		requests = append(requests, nodeOfPlugin(ctx, pod)...)
	}, client.InNamespace(object.GetNamespace()), client.MatchingLabels(object.GetLabels()))
	return requests
}

// chosen are the labels by which KMM's device plugins choose nodes, of those on a node, while a
// DaemonSet still goes by them or its controller may not have seen that it no longer does: without
// them the pods would leave.
func chosen(ctx context.Context, c client.Reader, labels map[string]string) (map[string]string, error) {
	kept := maps.Clone(labels)
	maps.DeleteFunc(kept, func(label, _ string) bool {
		return !nodemarks.Kept(label) || !strings.HasSuffix(label, v1beta1.DevicePluginTargetSuffix)
	})
	if len(kept) == 0 {
		return nil, nil
	}
	var all appsv1.DaemonSetList
	if err := c.List(ctx, &all, client.HasLabels{v1beta1.RoleLabel}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list DaemonSets of plugins: %w", err)
	}
	needed := map[string]bool{}
	for i := range all.Items {
		ds := &all.Items[i]
		for label := range ds.Spec.Template.Spec.NodeSelector {
			needed[label] = true
		}
		if ds.Status.ObservedGeneration < ds.Generation {
			needed[v1beta1.DevicePluginTargetLabel(ds.Namespace, ds.Labels[v1beta1.ModuleNameLabel])] = true
		}
	}
	maps.DeleteFunc(kept, func(label, _ string) bool { return !needed[label] })
	return kept, nil
}
