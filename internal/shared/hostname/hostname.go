// SPDX-License-Identifier: Apache-2.0

// Package hostname tells which host name a pod has. Programs name themselves by it, in the Leases
// that they hold for example.
package hostname

import "strings"

// most is how many bytes of a pod's name the kubelet takes.
const most = 63

// Of is the host name that the kubelet gives to a pod with this name: the name, cut at 63 bytes,
// without dashes and dots at the cut (truncatePodHostnameIfNeeded in pkg/kubelet/kubelet_pods.go of
// Kubernetes). A pod that asks for another host name, or is in its node's network, has another one.
func Of(pod string) string {
	if len(pod) <= most {
		return pod
	}
	return strings.TrimRight(pod[:most], "-.")
}
