// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which nodes a Module belongs. It is pure, and shared by the
// controllers that give orders and that count nodes, so that they agree.
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

	// What virtual-kubelet puts on its nodes: a label and a taint.
	virtualKubeletLabel = "type"
	virtualKubeletValue = "virtual-kubelet"
	virtualKubeletTaint = "virtual-kubelet.io/provider"
)

// processors are those that an agent can be built for.
var processors = []string{"386", "amd64", "arm", "arm64", "loong64", "ppc64le", "riscv64", "s390x"}

// alwaysTolerated are taints about a node's state, which every DaemonSet pod tolerates.
var alwaysTolerated = map[string]bool{
	corev1.TaintNodeNotReady:           true,
	corev1.TaintNodeUnreachable:        true,
	corev1.TaintNodeUnschedulable:      true,
	corev1.TaintNodeMemoryPressure:     true,
	corev1.TaintNodeDiskPressure:       true,
	corev1.TaintNodePIDPressure:        true,
	corev1.TaintNodeNetworkUnavailable: true,
}

// Selects reports whether the node has all labels of the Module's selector, which may be empty.
func Selects(m *v1beta1.Module, node *corev1.Node) bool {
	for key, value := range m.Spec.Selector {
		if have, ok := node.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// AgentExpected reports whether an agent can run on the node. Its pod need not be Ready: an order
// waits for an agent that is away.
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

// Tolerations are the Module's own, and one for the startup taint that Drover itself removes.
func Tolerations(m *v1beta1.Module) []corev1.Toleration {
	if m.Spec.StartupTaint == "" {
		return m.Spec.Tolerations
	}
	return append(slices.Clip(m.Spec.Tolerations), corev1.Toleration{Key: m.Spec.StartupTaint, Operator: corev1.TolerationOpExists})
}

// Starting reports whether the Module's startup taint still keeps other pods off a node.
func Starting(m *v1beta1.Module, node *corev1.Node) bool {
	return m.Spec.StartupTaint != "" &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == m.Spec.StartupTaint })
}

// Untolerated is the first taint that keeps the node out, or nil. It is part of the node.
func Untolerated(tolerations []corev1.Toleration, node *corev1.Node) *corev1.Taint {
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; !tolerates(tolerations, taint) {
			return taint
		}
	}
	return nil
}

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || alwaysTolerated[taint.Key] {
		return true
	}
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		// Lt and Gt are off: a feature gate of the cluster, which is not known here, turns them on.
		return t.ToleratesTaint(logr.Logger{}, taint, false)
	})
}

// Patience is how long a deleted Module waits for nodes.
func Patience(m *v1beta1.Module) time.Duration {
	if d := m.Spec.DeletionTimeout; d != nil {
		return d.Duration
	}
	return v1beta1.DefaultDeletionTimeout
}

// deathAfter is how long a node may report that it is not ready, as a restarting kubelet does.
const deathAfter = time.Minute

// DeadAt is when a node counts as dead if nothing changes; false for a node that is Ready. A node
// that the cluster has lost sight of (Ready Unknown) has been waited for already.
func DeadAt(node *corev1.Node) (time.Time, bool) {
	switch c := readyCondition(node); {
	case c == nil:
		return time.Time{}, true
	case c.Status == corev1.ConditionTrue:
		return time.Time{}, false
	case c.Status == corev1.ConditionFalse:
		return c.LastTransitionTime.Add(deathAfter), true
	default:
		return c.LastTransitionTime.Time, true
	}
}

// Ready reports whether the node's Ready condition is True.
func Ready(node *corev1.Node) bool {
	_, dead := DeadAt(node)
	return !dead
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

// Paused reports whether an annotation asks that nothing be changed.
func Paused(obj metav1.Object) bool {
	_, paused := obj.GetAnnotations()[v1beta1.PausedAnnotation]
	return paused
}

// Wishes are what annotations ask for, beyond a Module's spec.
type Wishes struct {
	Paused     bool         // nothing may be changed
	SkipChecks bool         // the kernel decides, not the agent
	Retry      *metav1.Time // the last request to forget failures; nil: there was none
}

// WishesFor joins those of a Module, which may be nil, and of a node; the newer retry counts.
func WishesFor(m *v1beta1.Module, node *corev1.Node) Wishes {
	w := wishesOf(node)
	if m == nil {
		return w
	}
	of := wishesOf(m)
	w.Paused = w.Paused || of.Paused
	w.SkipChecks = w.SkipChecks || of.SkipChecks
	if of.Retry != nil && (w.Retry == nil || of.Retry.After(w.Retry.Time)) {
		w.Retry = of.Retry
	}
	return w
}

func wishesOf(obj metav1.Object) Wishes {
	all := obj.GetAnnotations()
	_, skip := all[v1beta1.SkipChecksAnnotation]
	w := Wishes{Paused: Paused(obj), SkipChecks: skip}
	if text, asks := all[v1beta1.RetryAnnotation]; asks {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			// As it is read back from the API: in UTC, without fractions of a second.
			w.Retry = &metav1.Time{Time: at.UTC().Truncate(time.Second)}
		}
	}
	return w
}

// RetryAsked is when an object's annotation last asked for a retry; zero: never.
func RetryAsked(obj metav1.Object) time.Time {
	if at := wishesOf(obj).Retry; at != nil {
		return at.Time
	}
	return time.Time{}
}

// RetryIgnored reports whether an object's request for a retry is not a valid time.
func RetryIgnored(obj metav1.Object) bool {
	_, asks := obj.GetAnnotations()[v1beta1.RetryAnnotation]
	return asks && wishesOf(obj).Retry == nil
}

// SameWishes reports whether the annotations of two objects ask for the same.
func SameWishes(a, b metav1.Object) bool {
	return !slices.ContainsFunc(WishAnnotations, func(key string) bool {
		x, inA := a.GetAnnotations()[key]
		y, inB := b.GetAnnotations()[key]
		return inA != inB || x != y
	})
}

// WishAnnotations are the annotations by which people say what they wish.
var WishAnnotations = []string{
	v1beta1.PausedAnnotation, v1beta1.SkipChecksAnnotation, v1beta1.RetryAnnotation, v1beta1.ConfirmDeselectionAnnotation,
}
