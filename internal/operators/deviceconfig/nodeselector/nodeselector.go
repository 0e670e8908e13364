// SPDX-License-Identifier: Apache-2.0

// Package nodeselector says which nodes a DeviceConfig selects, and keeps each node with one of
// them.
package nodeselector

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// Exclusive refuses a DeviceConfig that loses nodes to another one, with the reason
// ConflictingNodeSelector.
var Exclusive = kit.Exclusive[*v1alpha1.DeviceConfig]{
	List:     func() client.ObjectList { return &v1alpha1.DeviceConfigList{} },
	Selector: Of,
	Reason:   v1alpha1.ReasonConflictingNodeSelector,
}

// Of returns the labels of the nodes that a DeviceConfig selects. An empty selector is one that is
// not set: it must not select every node.
func Of(d *v1alpha1.DeviceConfig) map[string]string {
	if len(d.Spec.NodeSelector) == 0 {
		return map[string]string{v1alpha1.DefaultNodeLabel: "true"}
	}
	return d.Spec.NodeSelector
}
