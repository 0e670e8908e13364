// SPDX-License-Identifier: Apache-2.0

// Package nodemarks tells what Drover has put on a Node, which is not Drover's own object: labels,
// a cordon and a condition. It is pure: a node and the Modules in, an answer out.
package nodemarks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// domain begins all labels of nodes that Drover keeps, but those by which upgrades are answered.
const domain = "kmm.node.kubernetes.io/"

// suffixes end the names of the labels that Drover keeps.
var suffixes = []string{".ready", ".device-plugin-ready", ".dra-ready", v1beta1.DevicePluginTargetSuffix}

// Kept reports whether Drover alone puts a label on nodes and takes it off. The deprecated ready
// label without a namespace is one of them: it is never wanted. A Module's name may end the labels
// by which users drive upgrades in any way.
func Kept(label string) bool {
	return strings.HasPrefix(label, v1beta1.VersionWorkerPrefix) || strings.HasPrefix(label, v1beta1.VersionSchedulePrefix) ||
		strings.HasPrefix(label, domain) && !Drives(label) &&
			slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(label, suffix) })
}

// Drives reports whether users drive ordered upgrades by a label.
func Drives(label string) bool { return strings.HasPrefix(label, v1beta1.VersionModulePrefix) }

// Speaking are the labels that a node may have because of Modules, as a set.
func Speaking(modules []types.NamespacedName) map[string]bool {
	labels := map[string]bool{}
	for _, m := range modules {
		for _, of := range []func(namespace, name string) string{
			v1beta1.ReadyLabel, v1beta1.VersionReadyLabel, v1beta1.DevicePluginReadyLabel, v1beta1.DevicePluginTargetLabel,
			v1beta1.DRAReadyLabel, v1beta1.VersionWorkerLabel, v1beta1.VersionScheduleLabel,
		} {
			labels[of(m.Namespace, m.Name)] = true
		}
	}
	return labels
}

// Labels are the labels of a node that Drover keeps, in order: those of Modules that are there, by
// [Speaking], and those of which the Module is gone.
func Labels(node *corev1.Node, speaking map[string]bool) (there, gone []string) {
	for label := range node.Labels {
		switch {
		case speaking[label]:
			there = append(there, label)
		case Kept(label):
			gone = append(gone, label)
		}
	}
	slices.Sort(there)
	slices.Sort(gone)
	return there, gone
}

// CordonedFor are the Modules (namespace/name) for which Drover has cordoned a node. A cordon of
// others has none.
func CordonedFor(node *corev1.Node) []string {
	return strings.FieldsFunc(node.Annotations[v1beta1.CordonedAnnotation], func(r rune) bool { return r == ',' })
}

// Condition is a node's condition of Drover's; nil: it has none.
func Condition(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1beta1.NodeConditionKernelModules })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}
