// SPDX-License-Identifier: Apache-2.0

// Package drain decides what emptying a node means. It is pure: a node and its pods in, an answer
// out.
//
// The write that cordons a node for a Module puts the Module's name into an annotation. So the
// cordon's owner is known after a restart, several Modules can share it, and Drover never takes
// back a cordon of others.
package drain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/nodemarks"
)

// Marked reports whether a node is cordoned for a Module.
func Marked(node *corev1.Node, module types.NamespacedName) bool {
	return node != nil && slices.Contains(nodemarks.CordonedFor(node), module.String())
}

// Cordon is the merge patch that cordons a node for a Module; nil: there is nothing to write. An
// administrator's cordon stays as it is.
func Cordon(node *corev1.Node, module types.NamespacedName) ([]byte, error) {
	have := nodemarks.CordonedFor(node)
	if node.Spec.Unschedulable && (len(have) == 0 || slices.Contains(have, module.String())) {
		return nil, nil
	}
	if !slices.Contains(have, module.String()) {
		have = append(have, module.String())
	}
	slices.Sort(have)
	return patch(node, strings.Join(have, ","), true)
}

// Uncordon is the merge patch that ends a Module's part in a cordon; nil: it has none.
func Uncordon(node *corev1.Node, module types.NamespacedName) ([]byte, error) {
	if !Marked(node, module) {
		return nil, nil
	}
	left := slices.DeleteFunc(nodemarks.CordonedFor(node), func(name string) bool { return name == module.String() })
	if len(left) > 0 {
		return patch(node, strings.Join(left, ","), node.Spec.Unschedulable)
	}
	return patch(node, nil, false)
}

// Lift is the merge patch that ends all Modules' parts in a cordon; nil: there are none.
func Lift(node *corev1.Node) ([]byte, error) {
	if len(nodemarks.CordonedFor(node)) == 0 {
		return nil, nil
	}
	return patch(node, nil, false)
}

// patch holds only for the node as it was read.
func patch(node *corev1.Node, names any, unschedulable bool) ([]byte, error) {
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": node.ResourceVersion,
			"annotations":     map[string]any{v1beta1.CordonedAnnotation: names},
		},
		"spec": map[string]any{"unschedulable": unschedulable},
	})
	if err != nil {
		return nil, fmt.Errorf("encode a cordon: %w", err)
	}
	return text, nil
}

// Meant is a pod that somebody has named.
type Meant struct {
	// Pod as namespace/name.
	Pod string
	// UID tells it from others that have or had its name; empty: it is not known.
	UID types.UID
}

// Is reports whether that is the pod.
func (m Meant) Is(pod *corev1.Pod) bool {
	return m.Pod == pod.Namespace+"/"+pod.Name && (m.UID == "" || m.UID == pod.UID)
}

// Goes reports whether a pod must leave before its node is empty. DaemonSet and static pods stay,
// since they would be back at once, and so do carriers, which bring images.
func Goes(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return false
	}
	if _, carrier := pod.Labels[v1beta1.CarrierLabel]; carrier {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner == nil || owner.Kind != "DaemonSet"
}

// Verdict is what becomes of a pod that is in the way.
type Verdict int

const (
	// Evict it.
	Evict Verdict = iota
	// Await its end.
	Await
	// Spare it: an eviction would lose something, which nobody has allowed.
	Spare
)

// Judge says what becomes of a pod in the way, and why, by the rules of kubectl drain.
func Judge(pod *corev1.Pod, options v1beta1.DrainOptions) (Verdict, string) {
	switch {
	case Leaving(pod):
		return Evict, ""
	case len(options.WaitForCompletion) > 0 && labels.SelectorFromSet(options.WaitForCompletion).Matches(labels.Set(pod.Labels)):
		return Await, "runs to its end: drainOptions.waitForCompletion"
	case !options.Force && metav1.GetControllerOfNoCopy(pod) == nil:
		return Spare, "nothing would bring it back: drainOptions.force is not set"
	case !options.DeleteEmptyDirData && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }):
		return Spare, "its emptyDir data would be lost: drainOptions.deleteEmptyDirData is not set"
	}
	return Evict, ""
}

// Leaving reports whether a pod is ending: it is waited for and not evicted again.
func Leaving(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }
