// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package operators shows device operators, and what they make of their samples.
package operators

import (
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// steps is what the groups' steps share.
type steps struct {
	*loads.Steps

	samples samples
}

// Groups are the groups about device operators.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &steps{Steps: &loads.Steps{Suite: base}}
	start := suite.Show("", "control plane, registry, operator and the first node", s.Start)
	return map[string][][]suite.Step{
		"operators": {{
			start,
			suite.Show("", "the DeviceConfig and Ptemplate operators, deployed as an administrator does", s.deployOperators),
			suite.Show("deviceConfig", "the DeviceConfig sample loads its kernel module, offers its devices, and is Ready", s.deviceConfigReady),
			suite.Show("deviceConfigRead", "an unprivileged pod reads the devices that it was allocated", s.deviceConfigConsumed),
			suite.Show("ptemplate", "the Ptemplate sample loads its kernel module with its parameters, offers its devices, and is Ready",
				s.ptemplateReady),
			suite.Show("ptemplateRead", "its unprivileged consumer is in the status, and reads the devices that it was allocated",
				s.ptemplateConsumed),
			suite.Show("cdi", "containers have their own devices by CDI, and no others", s.cdiOnly),
			suite.Show("health", "a device that vanishes is not allocatable until it is back", s.health),
			suite.Show("kubeletRestart", "after a restart of the kubelet the device plugins register again, and a new consumer reads its devices",
				s.kubeletRestart),
			suite.Show("deleted", "deleted objects leave the kernel, the node and the API", s.operatorsDeleted),
		}},
	}
}
