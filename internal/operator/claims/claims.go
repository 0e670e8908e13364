// SPDX-License-Identifier: Apache-2.0

// Package claims tells where pods hold devices of a DRA driver, by the ResourceClaims that it is
// given.
package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/drover-project/drover/internal/shared/drain"
)

// DriverAnnotation on a DRA driver's DaemonSet names the driver, in case the Module no longer does.
const DriverAnnotation = "drover.dev/dra-driver"

// Holds reports whether a claim has devices of one of the drivers and is reserved for a pod. The
// kubelet unprepares devices before it says that a pod has ended, and only then is the pod taken
// off the claim.
func Holds(claim *resourcev1.ResourceClaim, drivers ...string) bool {
	if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0 {
		return false
	}
	return slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return slices.Contains(drivers, r.Driver)
	})
}

// On are the claims that may be prepared on the node, as namespace/name in order: also those with
// devices that every node reaches.
func On(node *corev1.Node, held []resourcev1.ResourceClaim) []string {
	var names []string
	for i := range held {
		if at(node, held[i].Status.Allocation) {
			names = append(names, held[i].Namespace+"/"+held[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// Pods are those for which the claims of On are reserved. They may be on other nodes.
func Pods(node *corev1.Node, held []resourcev1.ResourceClaim) []drain.Meant {
	var pods []drain.Meant
	for i := range held {
		if !at(node, held[i].Status.Allocation) {
			continue
		}
		for _, user := range held[i].Status.ReservedFor {
			if user.APIGroup == "" && user.Resource == "pods" {
				pods = append(pods, drain.Meant{Pod: held[i].Namespace + "/" + user.Name, UID: user.UID})
			}
		}
	}
	return pods
}

// at reports whether devices can be on the node. When in doubt, they are.
func at(node *corev1.Node, allocation *resourcev1.AllocationResult) bool {
	if allocation.NodeSelector == nil {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(allocation.NodeSelector)
	return err != nil || selector.Match(node)
}
