// SPDX-License-Identifier: Apache-2.0

// Package node turns what agents verified into node labels and into Module.status.
//
// Two reconcilers share its watches. The labeler, keyed by Node, keeps the ready, version.ready and device-plugin-ready
// labels. The reporter, keyed by Module, keeps Module.status and emits events.
// Reads: Node, NodeModulesConfig, Module, plugin and carrier pods. Writes: those labels, Module.status, events.
package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kube"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules;nodemodulesconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// labeler keeps the labels of nodes.
type labeler struct {
	client client.Client
}

// Reconcile makes one node's labels right, with at most one write.
func (l *labeler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := l.client.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, ignoreNotFound("get Node", err)
	}
	nmc := &v1beta1.NodeModulesConfig{}
	if err := l.client.Get(ctx, request.NamespacedName, nmc, client.DisableReadYourWritesConsistency); apierrors.IsNotFound(err) {
		nmc = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get NodeModulesConfig: %w", err)
	}
	plugins, err := l.readyPlugins(ctx, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	patch, err := labelPatch(node.Labels, wantedLabels(node, nmc, plugins))
	if err != nil || patch == nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(2).Info("Patching labels", "patch", string(patch))
	if err := l.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerNode); err != nil {
		return reconcile.Result{}, ignoreNotFound("patch the labels of a Node", err)
	}
	return reconcile.Result{}, nil
}

// readyPlugins are the Modules whose device plugin has a ready pod on the node.
func (l *labeler) readyPlugins(ctx context.Context, node string) ([]types.NamespacedName, error) {
	var pods corev1.PodList
	err := l.client.List(ctx, &pods, client.MatchingFields{pluginNodeIndex: node},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, fmt.Errorf("list device plugin pods: %w", err)
	}
	var modules []types.NamespacedName
	for i := range pods.Items {
		if podReady(&pods.Items[i]) {
			modules = append(modules, moduleOf(&pods.Items[i]))
		}
	}
	return modules, nil
}

// pluginNode is the index of device plugin pods by node.
func pluginNode(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || !isPlugin(pod) || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// isPlugin is true for pods of a Module's device plugin.
func isPlugin(object client.Object) bool {
	return object.GetLabels()[v1beta1.RoleLabel] == rolePlugin && object.GetLabels()[v1beta1.ModuleNameLabel] != ""
}

// moduleOf is the Module that a pod was made for; it is in the pod's namespace.
func moduleOf(pod client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[v1beta1.ModuleNameLabel]}
}

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

func ignoreNotFound(what string, err error) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
