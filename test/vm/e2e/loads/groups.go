// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package loads shows what a virtual node loads and unloads, and what it refuses.
package loads

import (
	"maps"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// Steps is what the groups' steps share.
type Steps struct {
	*suite.Suite
	// baked is the Module that the first node's image was baked for.
	baked *v1beta1.Module
}

// Groups are this package's.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &Steps{Suite: base}
	all := s.loadGroups()
	maps.Copy(all, s.releaseGroups())
	return all
}

// releaseGroups are the groups about other releases and drivers.
func (s *Steps) releaseGroups() map[string][][]suite.Step {
	start := suite.Show("", "control plane, registry, operator and the first node", s.Start)
	return map[string][][]suite.Step{
		"release": {{
			start,
			suite.Show("", "kubelet and API server are of the release", s.kubeletIsOfRelease),
			suite.Show("withoutImageVolumes", "the operator finds out that an init container has to deliver, and the module is live",
				s.loadWithoutImageVolumes),
			suite.Show("loaded", "its Module is Ready, and takes it out of the kernel when it goes", s.goesAgain),
		}},
		"selinux": {s.seLinuxSteps(""), s.seLinuxSteps(artifacts.ContainerSELinux)},
		"dra": {{
			start,
			suite.Show("published", "a Module with a DRA driver loads its module and publishes its devices", s.published),
			suite.Show("claimed", "an unprivileged pod reads the device that it claimed", s.claimed),
			suite.Show("keptForClaim", "with the Module deleted, driver and kernel module stay while a claim is prepared", s.keptForClaim),
			suite.Show("goneAfterClaim", "with the pod gone, the claim is unprepared, then driver, kernel module and Module go", s.goneAfterClaim),
		}},
	}
}

// loadGroups are the groups about what a node loads.
func (s *Steps) loadGroups() map[string][][]suite.Step {
	start := suite.Show("", "control plane, registry, operator and the first node", s.Start)
	loaded := suite.Show("loaded", "a Module loads a module of ours with its parameters", s.LoadModule)
	return map[string][][]suite.Step{
		"main": {{
			start,
			suite.Show("a", "a Module loads a module of ours with its parameters", s.LoadModule),
			suite.Show("d", "the carrier ran under Pod Security restricted and is gone", s.carrierGone),
			suite.Show("d", "nobody with the role edit can make, change or enter a carrier", s.carrierSealed),
			suite.Show("d", "without the sealing policy nothing is delivered", s.withoutPolicy),
			suite.Show("d", "without image volumes the init container delivers", s.initContainer),
			suite.Show("b", "the device plugin registers and an unprivileged pod reads the device", s.devicePlugin),
			suite.Show("c", "a new device plugin image replaces only its pod", s.replacePlugin),
			suite.Show("e", "a deleted NodeModulesConfig unloads nothing and comes back whole", s.configDeleted),
			suite.Show("e", "a deleted Module leaves the kernel, the labels and the API", s.moduleDeleted),
			suite.Show("f", "third-party code loads with its in-tree dependency", s.thirdParty),
			suite.Show("f", "a second kernel, with compressed modules and a + in its name", s.secondKernel),
		}},
		"node": {{
			start,
			loaded,
			suite.Show("rmmod", "what somebody unloads by hand is loaded again", s.repair),
			suite.Show("cordon", "cordon, drain and uncordon unload nothing", s.drain),
			suite.Show("inUse", "a pod that holds the device is named, and waited for", s.inUse),
			suite.Show("networkCut", "a reload completes while the node's network is cut", s.reloadAlone),
			suite.Show("agentKilled", "an agent killed in the middle of a reload has it completed by the next", s.agentKilled),
			suite.Show("vermagic", "a module with another vermagic flag is refused and never tried", s.vermagic),
			suite.Show("symbolCRC", "a module with another symbol CRC is tried once", s.symbolCRC),
			suite.Show("rolledBack", "a new build that the kernel refuses brings the previous one back", s.rolledBack),
			suite.Show("firmware", "a module finds the firmware that came with it, and takes it along when it goes", s.firmware),
			suite.Show("inTree", "a module of the kernel's own makes room, with its user, and both come back", s.inTree),
			suite.Show("inTreeBusy", "of the kernel's own nothing leaves while one is in use, and they come back as they were", s.inTreeBusy),
			suite.Show("putBack", "what a passing error keeps from coming back comes back, with its parameter", s.putBack),
			suite.Show("notInForce", "parameters that are not in force are told, with both values", s.notInForce),
			suite.Show("modprobe", "kmod's modprobe loads and unloads with args, and with rawArgs", s.modprobe),
			suite.Show("blacklist", "what a Module replaces is kept out of the host's own loads, while it is there", s.blacklist),
			suite.Show("otherCluster", "in another cluster, nothing is loaded that only the disk tells of", s.otherCluster),
			suite.Show("successorServes", "an agent that a hung init keeps from ending has a successor, which serves", s.hungCall),
		}, {
			start,
			loaded,
			suite.Show("crash", "a module that panics on load is held back, then quarantined, and the node serves", s.crash),
			suite.Show("reboot", "after a reboot it is loaded without registry, carrier and operator", s.rebootAlone),
			suite.Show("rebootWithoutAPI", "after a reboot without the API server it is loaded as soon as that is back", s.rebootWithoutAPI),
			suite.Show("staticPod", "with the static pod, after a reboot it is loaded before the API server is back", s.StaticPod),
			suite.Show("signature", "where signatures are enforced, a key in UEFI db loads; another key and none are tried once", s.signature),
		}},
	}
}
