// SPDX-License-Identifier: Apache-2.0

package module

import (
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/desired"
)

// wants is what the Module wants of a node.
func (pl *planner) wants(v *view) desired.Answer { return pl.desired.On(&v.node.Status.NodeInfo) }

// entry is the order for what is wanted, without a carrier. It is shared: nodes are many, kernels few.
func (pl *planner) entry(want *desired.State) *v1beta1.NodeModuleSpec {
	if known := pl.entries[want]; known != nil {
		return known
	}
	if pl.entries == nil {
		pl.entries = map[*desired.State]*v1beta1.NodeModuleSpec{}
	}
	pl.entries[want] = entryOf(pl.snap.module, want)
	return pl.entries[want]
}

func entryOf(m *v1beta1.Module, want *desired.State) *v1beta1.NodeModuleSpec {
	container := &m.Spec.ModuleLoader.Container
	return &v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{
			Namespace:          m.Namespace,
			Name:               m.Name,
			ServiceAccountName: delivery.ServiceAccount(m),
			ImageRepoSecret:    m.Spec.ImageRepoSecret,
			Tolerations:        m.Spec.Tolerations,
			Version:            container.Version,
		},
		Config:          want.Config,
		Delivery:        &v1beta1.Delivery{ID: want.Delivery},
		UnloadPolicy:    container.UnloadPolicy,
		BlacklistInTree: container.BlacklistInTree,
		ReadyWhen:       checksOnNode(container.ReadyWhen),
	}
}

// checksOnNode are the checks that the node's agent makes; commands run in the plugin's pod.
func checksOnNode(all []v1beta1.ReadyCheck) []v1beta1.ReadyCheck {
	var checks []v1beta1.ReadyCheck
	for i := range all {
		if len(all[i].Command) == 0 {
			checks = append(checks, all[i])
		}
	}
	return checks
}
