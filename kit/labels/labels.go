// SPDX-License-Identifier: Apache-2.0

// Package labels has the labels that Drover puts on nodes, for pods that need a ready kernel
// module, and for readers of nodes. They are those of upstream Kernel Module Management.
package labels

import (
	"maps"

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

// WhereReady is a nodeSelector for nodes with a ready kernel module and the other labels.
func WhereReady(namespace, module string, other map[string]string) map[string]string {
	selector := map[string]string{Ready(namespace, module): ""}
	maps.Copy(selector, other)
	return selector
}

// IsReady tells whether a node has the label that a Module's kernel module is ready.
func IsReady(node map[string]string, namespace, module string) bool {
	_, found := node[Ready(namespace, module)]
	return found
}
