// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which nodes a Module belongs. It is pure: facts in, answer out.
//
// It is shared by the controller that gives orders and by the one that counts nodes for Module.status,
// so that the two can never disagree.
package placement

import (
	"slices"

	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	linux = "linux"

	// virtualKubeletLabel is what virtual-kubelet puts on its nodes: `type=virtual-kubelet`.
	virtualKubeletLabel = "type"
	virtualKubeletValue = "virtual-kubelet"
	// virtualKubeletTaint is the key of the taint that virtual-kubelet puts on its nodes.
	virtualKubeletTaint = "virtual-kubelet.io/provider"
)

// processors are those whose kernel modules can be told apart, and for which an agent can be built.
var processors = []string{"386", "amd64", "arm", "arm64", "loong64", "ppc64le", "riscv64", "s390x"}

// alwaysTolerated are the taints that a DaemonSet pod tolerates whatever its spec says: they describe the state of a
// node, not who may use it.
var alwaysTolerated = map[string]bool{
	corev1.TaintNodeNotReady:           true,
	corev1.TaintNodeUnreachable:        true,
	corev1.TaintNodeUnschedulable:      true,
	corev1.TaintNodeMemoryPressure:     true,
	corev1.TaintNodeDiskPressure:       true,
	corev1.TaintNodePIDPressure:        true,
	corev1.TaintNodeNetworkUnavailable: true,
}

// Selects reports whether all labels of the Module's selector stand on the node. An empty selector selects every node.
func Selects(m *v1beta1.Module, node *corev1.Node) bool {
	for key, value := range m.Spec.Selector {
		if have, ok := node.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// AgentExpected reports whether Drover's agent can run on the node: a Linux node with a kernel of its own.
//
// Whether the agent's pod is Ready is not asked: an order for a node whose agent is away costs nothing, waits for it,
// and is what the agent finds when it comes back.
func AgentExpected(node *corev1.Node) bool { return Unsupported(node) == "" }

// Unsupported says why no agent can run on the node; empty: one can.
func Unsupported(node *corev1.Node) string {
	// A label that is missing counts as Linux: kubelets set it, but an administrator can take it off.
	if os := node.Labels[corev1.LabelOSStable]; os != "" && os != linux {
		return "runs " + os
	}
	if os := node.Status.NodeInfo.OperatingSystem; os != "" && os != linux {
		return "runs " + os
	}
	if arch := node.Status.NodeInfo.Architecture; arch != "" && !slices.Contains(processors, arch) {
		return "has the processor " + arch
	}
	virtual := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == virtualKubeletTaint })
	if virtual || node.Labels[virtualKubeletLabel] == virtualKubeletValue {
		return "is a virtual kubelet, without a kernel of its own"
	}
	return ""
}

// Eligible reports whether the Module belongs on the node, taints aside.
func Eligible(m *v1beta1.Module, node *corev1.Node) bool {
	return Selects(m, node) && AgentExpected(node)
}

// Wanted reports whether the node shall hold the Module's kernel module, its kernel's mapping aside.
// Taints decide on the first load only: a node that follows the Module already (it has an order or holds the kernel
// module) keeps following whatever its taints, because a taint or a cordon must never unload.
func Wanted(m *v1beta1.Module, node *corev1.Node, follows bool) bool {
	return Eligible(m, node) && (follows || Tolerated(Tolerations(m), node))
}

// Tolerations are the Module's own, and one for its startup taint: what takes a taint off must not wait behind it.
func Tolerations(m *v1beta1.Module) []corev1.Toleration {
	if m.Spec.StartupTaint == "" {
		return m.Spec.Tolerations
	}
	return append(slices.Clip(m.Spec.Tolerations), corev1.Toleration{Key: m.Spec.StartupTaint, Operator: corev1.TolerationOpExists})
}

// Tolerated reports whether the tolerations admit a node as they would for a DaemonSet's pod.
func Tolerated(tolerations []corev1.Toleration, node *corev1.Node) bool {
	return Untolerated(tolerations, node) == nil
}

// Untolerated is the first taint that keeps the node out, or nil. It is part of the node.
func Untolerated(tolerations []corev1.Toleration, node *corev1.Node) *corev1.Taint {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || alwaysTolerated[taint.Key] {
			continue
		}
		if !tolerates(tolerations, taint) {
			return taint
		}
	}
	return nil
}

// silent discards: only comparison operators would log, and they are off.
var silent logr.Logger

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		// Comparison operators (Lt, Gt) are off: they are behind a feature gate of the cluster that is not known here.
		if tolerations[i].ToleratesTaint(silent, taint, false) {
			return true
		}
	}
	return false
}

// Patience is how long a Module that is being deleted waits for nodes.
func Patience(m *v1beta1.Module) time.Duration {
	if d := m.Spec.DeletionTimeout; d != nil {
		return d.Duration
	}
	return v1beta1.DefaultDeletionTimeout
}

// deathAfter is how long a node may say itself that it is not ready: a kubelet that restarts says so for seconds.
const deathAfter = time.Minute

// DeadAt is since when, or from when on, a node counts as dead if nothing changes; false for a node that is Ready. A node
// that the cluster has lost sight of (Ready Unknown) has been waited for already.
func DeadAt(node *corev1.Node) (time.Time, bool) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			switch c.Status {
			case corev1.ConditionTrue:
				return time.Time{}, false
			case corev1.ConditionFalse:
				return c.LastTransitionTime.Add(deathAfter), true
			case corev1.ConditionUnknown:
			}
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, true
}

// Ready reports whether the node's Ready condition is True.
func Ready(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Paused reports whether somebody asked by annotation that nothing be changed. The annotation's value does not matter.
func Paused(obj metav1.Object) bool {
	_, paused := obj.GetAnnotations()[v1beta1.PausedAnnotation]
	return paused
}
