// SPDX-License-Identifier: Apache-2.0

package startup

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/status"
)

// finished are a node's startup taints whose Modules are all ready there, in order. A taint that no
// Module of the node names is somebody else's.
func finished(node *corev1.Node, config *v1beta1.NodeModulesConfig, modules []v1beta1.Module) []string {
	waits := map[string]bool{}
	for i := range modules {
		m := &modules[i]
		key := m.Spec.StartupTaint
		if key == "" || m.DeletionTimestamp != nil || !hasTaint(node, key) {
			continue
		}
		entry := status.EntryOf(config, m.Namespace, m.Name)
		if placement.Wanted(m, node, entry.Pending()) {
			waits[key] = waits[key] || !ready(m, node, entry)
		}
	}
	var done []string
	for key, wait := range waits {
		if !wait {
			done = append(done, key)
		}
	}
	slices.Sort(done)
	return done
}

// ready is true where the kernel module and, if there is one, the plugin are ready. The node
// controller keeps the plugins' labels.
func ready(m *v1beta1.Module, node *corev1.Node, entry status.Entry) bool {
	has := func(label string) bool {
		_, ok := node.Labels[label]
		return ok
	}
	return (m.Spec.ModuleLoader == nil || entry.Usable(node)) &&
		(m.Spec.DevicePlugin == nil || has(v1beta1.DevicePluginReadyLabel(m.Namespace, m.Name))) &&
		(m.Spec.DRA == nil || has(v1beta1.DRAReadyLabel(m.Namespace, m.Name)))
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// withoutTaints is a JSON patch that removes the taints with these keys, whatever their effect.
// Each removal first tests that the same node still has this very taint there. nil: there is none.
func withoutTaints(node *corev1.Node, keys []string) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	patch := []operation{{Op: "test", Path: "/metadata/uid", Value: node.UID}}
	for i, taint := range slices.Backward(node.Spec.Taints) {
		if path := fmt.Sprintf("/spec/taints/%d", i); slices.Contains(keys, taint.Key) {
			patch = append(patch, operation{Op: "test", Path: path, Value: taint}, operation{Op: "remove", Path: path})
		}
	}
	if len(patch) == 1 {
		return nil, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of taints: %w", err)
	}
	return text, nil
}
