// SPDX-License-Identifier: Apache-2.0

// Package taints says which taints others put on the nodes of histories, and what those ask for.
package taints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Others and Upgrade are the keys of taints that others put on nodes. Drover is told that the
// second one asks for an unload. No Module of histories tolerates them.
const Others, Upgrade = "example.com/others", "example.com/upgrade"

// Sets are what others keep pods off a node with, or ask for unloads by. Newcomers are what Nodes
// have when they come.
var (
	Sets = [][]corev1.Taint{nil, One(Others, corev1.TaintEffectNoSchedule), One(Others, corev1.TaintEffectNoExecute),
		One(Upgrade, corev1.TaintEffectNoSchedule), One(Upgrade, corev1.TaintEffectNoExecute)}
	Newcomers = [][]corev1.Taint{nil, nil, Sets[1], Sets[2]}
)

// One is a taint alone.
func One(key string, effect corev1.TaintEffect) []corev1.Taint {
	return []corev1.Taint{{Key: key, Effect: effect}}
}

// KeepOff says whether others' taints keep Modules that are not there off the node. The cluster's
// own taints, of new nodes, are not meant.
func KeepOff(n *corev1.Node) bool { return has(n, Others) || AskForUnload(n) }

// AskForUnload says whether a taint of the node asks for an unload.
func AskForUnload(n *corev1.Node) bool { return has(n, Upgrade) }

func has(n *corev1.Node, key string) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
