// SPDX-License-Identifier: Apache-2.0

// Package node turns what agents verified into node labels and into Module.status.
//
// Two reconcilers share its watches. The labeler, keyed by Node, keeps the ready, version.ready,
// device-plugin-ready, dra-ready and beta version labels. The reporter, keyed by Module, keeps
// Module.status and emits events. Reads: Node, NodeModulesConfig, Module, plugin and carrier pods,
// DaemonSets. Writes: those labels, Module.status, events.
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
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules;nodemodulesconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// labeler keeps the labels of nodes.
type labeler struct {
	client client.Client
	gate   *gate.Gate
}

// Reconcile makes one node's labels right, with at most one write.
func (l *labeler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if l.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	node := &corev1.Node{}
	if err := l.client.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, kube.UnlessGone("get Node", err)
	}
	nmc := &v1beta1.NodeModulesConfig{}
	if err := l.client.Get(ctx, request.NamespacedName, nmc, client.DisableReadYourWritesConsistency); apierrors.IsNotFound(err) {
		nmc = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get NodeModulesConfig: %w", err)
	}
	plugins, busy, err := readyPlugins(ctx, l.client, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	patch, err := labelPatch(node.Labels, wantedLabels(node, nmc, plugins, busy))
	if err != nil || patch == nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).V(2).Info("Patching labels", "patch", string(patch))
	if err := l.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerNode); err != nil {
		return reconcile.Result{}, kube.UnlessGone("patch the labels of a Node", err)
	}
	return reconcile.Result{}, nil
}
