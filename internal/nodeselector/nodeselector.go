// SPDX-License-Identifier: Apache-2.0

// Package nodeselector keeps each node with one DeviceConfig: it says which nodes a DeviceConfig selects, and whom it loses them to where several
// select the same ones. It reads DeviceConfigs, Modules and labels of Nodes, and writes nothing.
package nodeselector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

// Of returns the labels of the nodes that a DeviceConfig selects. An empty selector is one that is not set: it must not select every node.
func Of(d *v1alpha1.DeviceConfig) map[string]string {
	if len(d.Spec.NodeSelector) == 0 {
		return map[string]string{v1alpha1.DefaultNodeLabel: "true"}
	}
	return d.Spec.NodeSelector
}

// Check returns nil if a DeviceConfig may have its nodes, a [kit.Problem] with the reason ConflictingNodeSelector if it loses some of them to another
// one, and the reader's error if that could not be found out. The reader may be a cache; what it does not show is not judged: where an operator is
// confined to namespaces, DeviceConfigs elsewhere do not count.
func Check(ctx context.Context, reader client.Reader, d *v1alpha1.DeviceConfig) error {
	var all v1alpha1.DeviceConfigList
	if err := reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list DeviceConfigs: %w", err)
	}
	var modules v1beta1.ModuleList
	if err := reader.List(ctx, &modules); err != nil {
		return fmt.Errorf("list Modules: %w", err)
	}
	nodes, err := labelled(ctx, reader)
	if err != nil {
		return err
	}
	if conflict := judge(d, all.Items, modules.Items, nodes); conflict != nil {
		return kit.Refused(v1alpha1.ReasonConflictingNodeSelector, "DeviceConfig %s", conflict)
	}
	return nil
}

// Moves reports whether a DeviceConfig or a Module selects a node by one of the two sets of labels and not by the other. Most changes of labels are no
// matter of theirs: Drover itself labels each node on which a kernel module is ready.
func Moves(ctx context.Context, reader client.Reader, before, after map[string]string) (bool, error) {
	var configs v1alpha1.DeviceConfigList
	if err := reader.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list DeviceConfigs: %w", err)
	}
	var modules v1beta1.ModuleList
	if err := reader.List(ctx, &modules, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list Modules: %w", err)
	}
	for i := range configs.Items {
		if moves(Of(&configs.Items[i]), before, after) {
			return true, nil
		}
	}
	for i := range modules.Items {
		if moves(modules.Items[i].Spec.Selector, before, after) {
			return true, nil
		}
	}
	return false, nil
}

func moves(selector, before, after map[string]string) bool {
	s := labels.SelectorFromSet(selector)
	return s.Matches(labels.Set(before)) != s.Matches(labels.Set(after))
}

// judge is Check without a cluster. A DeviceConfig that is being deleted claims nothing but the nodes of its Module, which are taken until it is gone:
// the kernel module has to be unloaded before somebody else loads one.
func judge(d *v1alpha1.DeviceConfig, all []v1alpha1.DeviceConfig, modules []v1beta1.Module, nodes []corev1.Node) *kit.Conflict {
	var others []kit.Claim
	for i := range all {
		if all[i].UID == d.UID {
			continue
		}
		c := claim(&all[i], modules)
		if !all[i].DeletionTimestamp.IsZero() {
			if c.Module == nil {
				continue
			}
			c.Selector = c.Module.Spec.Selector
		}
		others = append(others, c)
	}
	return kit.Overlap(claim(d, modules), others, nodes)
}

func claim(d *v1alpha1.DeviceConfig, modules []v1beta1.Module) kit.Claim {
	c := kit.Claim{Key: client.ObjectKeyFromObject(d), Selector: Of(d), Created: d.CreationTimestamp.Time}
	for i := range modules {
		if modules[i].Namespace == d.Namespace && metav1.IsControlledBy(&modules[i], d) {
			c.Module = &modules[i]
		}
	}
	return c
}

// labelled returns the nodes with nothing but their metadata: that is all that a cache has to hold of them.
func labelled(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	// Nothing is changed in them, and there may be thousands.
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	nodes := make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i].ObjectMeta = list.Items[i].ObjectMeta
	}
	return nodes, nil
}
