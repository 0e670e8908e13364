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
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/nodemarks"
	"github.com/drover-project/drover/internal/shared/status"
)

// wantedLabels are the labels that a node should have: what the agent verified in this boot and is
// still ordered, and the device plugins and DRA drivers whose pod is ready. nmc is nil when there
// is none. What cannot be a label is left out: the labels of a node are written together, and one
// that is refused would keep all others as they are.
func wantedLabels(node *corev1.Node, nmc *v1beta1.NodeModulesConfig, plugins []plugin,
	busy func(types.NamespacedName) bool) map[string]string {
	want := versionLabels(node.Labels, busy)
	put := func(label, value string) {
		if len(validation.IsQualifiedName(label)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			want[label] = value
		}
	}
	if nmc != nil {
		for i := range nmc.Status.Modules {
			live := &nmc.Status.Modules[i]
			if !status.EntryOf(nmc, live.Namespace, live.Name).Usable(node) {
				continue
			}
			put(v1beta1.ReadyLabel(live.Namespace, live.Name), "")
			if live.Version != "" {
				put(v1beta1.VersionReadyLabel(live.Namespace, live.Name), live.Version)
			}
		}
	}
	for _, p := range plugins {
		put(p.label(), "")
	}
	return want
}

// labelChange is what turns have into want, other labels untouched: new values, nil for labels that
// go.
func labelChange(have, want map[string]string) map[string]any {
	change := map[string]any{}
	for label, value := range want {
		if now, ok := have[label]; !ok || now != value {
			change[label] = value
		}
	}
	for label := range have {
		if _, ok := want[label]; !ok && nodemarks.Kept(label) {
			change[label] = nil
		}
	}
	return change
}

// labelPatch is a merge patch of what labelChange says; nil when nothing is to be done.
func labelPatch(have, want map[string]string) ([]byte, error) {
	change := labelChange(have, want)
	if len(change) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": change}})
	if err != nil {
		return nil, fmt.Errorf("encode the labels: %w", err)
	}
	return patch, nil
}

// same is true when two label sets agree in the labels that count.
func same(a, b map[string]string, counts func(label string) bool) bool {
	only := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(label, _ string) bool { return !counts(label) })
		return labels
	}
	return maps.Equal(only(a), only(b))
}

// versionLabels are the labels that answer the one by which a user drives a Module's upgrades on
// a node, after the next step. The steps are upstream's, one at a time: where the user's label is
// not what the node has, first the device plugin's label goes, then, without plugin pods, the
// order's; once the kernel module is gone, the order's comes with the new value, then the plugin's.
func versionLabels(have map[string]string, busy func(module types.NamespacedName) bool) map[string]string {
	want := map[string]string{}
	for module := range versioned(have) {
		user, asked := have[v1beta1.VersionModulePrefix+module.Namespace+"."+module.Name]
		workerLabel, scheduleLabel := v1beta1.VersionWorkerLabel(module.Namespace, module.Name),
			v1beta1.VersionScheduleLabel(module.Namespace, module.Name)
		worker, ordered := have[workerLabel]
		schedule, scheduled := have[scheduleLabel]
		_, ready := have[v1beta1.ReadyLabel(module.Namespace, module.Name)]
		right := asked && ordered && worker == user
		switch {
		case scheduled && (!right || schedule != user):
			scheduled = false
		case right:
			schedule, scheduled = user, true
		case ordered && !busy(module):
			ordered = false
		case !ordered && asked && !ready:
			worker, ordered = user, true
		}
		if ordered {
			want[workerLabel] = worker
		}
		if scheduled {
			want[scheduleLabel] = schedule
		}
	}
	return want
}

// versioned are the Modules that version labels on a node speak of.
func versioned(labels map[string]string) map[types.NamespacedName]bool {
	modules := map[types.NamespacedName]bool{}
	for label := range labels {
		for _, prefix := range []string{v1beta1.VersionModulePrefix, v1beta1.VersionWorkerPrefix, v1beta1.VersionSchedulePrefix} {
			if of, ok := strings.CutPrefix(label, prefix); ok {
				if namespace, name, ok := strings.Cut(of, "."); ok { // a namespace has no dots
					modules[types.NamespacedName{Namespace: namespace, Name: name}] = true
				}
			}
		}
	}
	return modules
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules;nodemodulesconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// labeler keeps the labels of nodes.
type labeler struct {
	client  client.Client
	gate    *gate.Gate
	refused *refusals
}

// Reconcile makes one node's labels right, with at most one write.
func (l *labeler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if l.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	node := &corev1.Node{}
	if err := l.client.Get(ctx, request.NamespacedName, node); err != nil {
		l.refused.note(request.Name, nil, nil)
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
	targets, err := chosen(ctx, l.client, node.Labels)
	if err != nil {
		return reconcile.Result{}, err
	}
	want := wantedLabels(node, nmc, plugins, busy)
	maps.Copy(want, targets)
	result := reconcile.Result{}
	if len(targets) > 0 {
		result.RequeueAfter = gate.Pause
	}
	if err := l.write(ctx, node, want); err != nil {
		return reconcile.Result{}, err
	}
	return result, nil
}

// write makes a node's labels what is wanted, and remembers what the API server refuses.
func (l *labeler) write(ctx context.Context, node *corev1.Node, want map[string]string) error {
	name, changed := node.Name, slices.Collect(maps.Keys(labelChange(node.Labels, want))) // the answer becomes the node
	patch, err := labelPatch(node.Labels, want)
	if err != nil {
		return err
	}
	if patch != nil {
		log.FromContext(ctx).V(2).Info("Patching labels", "patch", string(patch))
		err = l.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch), kube.OwnerNode)
	}
	l.refused.note(name, changed, err)
	return kube.UnlessGone("patch the labels of a Node", err)
}
