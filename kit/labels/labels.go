// SPDX-License-Identifier: Apache-2.0

// Package labels names the labels that Drover puts on nodes, for pods that may run only where a kernel module is ready, and for whoever reads nodes.
// They are the same as upstream Kernel Module Management's.
package labels

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Ready is on a node where the kernel module of a Module is live, verified in this boot.
func Ready(namespace, module string) string { return v1beta1.ReadyLabel(namespace, module) }

// DevicePluginReady is on a node where the device plugin of a Module is ready.
func DevicePluginReady(namespace, module string) string {
	return v1beta1.DevicePluginReadyLabel(namespace, module)
}

// VersionReady is on a node where a version of a Module is live; its value is the version.
func VersionReady(namespace, module string) string {
	return v1beta1.VersionReadyLabel(namespace, module)
}

// WhereReady selects the nodes where the kernel module of a Module is ready and that have other labels, too: a nodeSelector for a pod.
func WhereReady(namespace, module string, other map[string]string) map[string]string {
	selector := map[string]string{Ready(namespace, module): ""}
	for name, value := range other {
		selector[name] = value
	}
	return selector
}

// IsReady reports whether a node with these labels says that the kernel module of a Module is ready.
func IsReady(node map[string]string, namespace, module string) bool {
	_, found := node[Ready(namespace, module)]
	return found
}
