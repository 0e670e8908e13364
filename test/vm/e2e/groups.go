// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

// groups are the steps by the name of their group, in lanes that run beside each other: a virtual node has one processor, and so has work for one of
// the host's. A step may stand on the ones before it in its lane.
func (s *suite) groups() map[string][][]step {
	start := step{"", "control plane, registry, operator and the first node", s.start}
	loaded := step{"loaded", "a Module loads a module of ours with its parameters", s.loadModule}
	return map[string][][]step{
		"main": {{
			start,
			{"a", "a Module loads a module of ours with its parameters", s.loadModule},
			{"d", "the carrier ran under Pod Security restricted and is gone", s.carrierGone},
			{"d", "nobody with the role edit can make, change or enter a carrier", s.carrierSealed},
			{"d", "without the sealing policy nothing is delivered", s.withoutPolicy},
			{"d", "without image volumes the init container delivers", s.initContainer},
			{"b", "the device plugin registers and an unprivileged pod reads the device", s.devicePlugin},
			{"c", "a new device plugin image replaces only its pod", s.replacePlugin},
			{"e", "a deleted NodeModulesConfig unloads nothing and comes back whole", s.configDeleted},
			{"e", "a deleted Module leaves the kernel, the labels and the API", s.moduleDeleted},
			{"f", "third-party code loads with its in-tree dependency", s.thirdParty},
			{"f", "a second kernel, with compressed modules and a + in its name", s.secondKernel},
		}},
		"node": {{
			start,
			loaded,
			{"rmmod", "what somebody unloads by hand is loaded again", s.repair},
			{"cordon", "cordon, drain and uncordon unload nothing", s.drain},
			{"inUse", "a pod that holds the device is named, and waited for", s.inUse},
			{"networkCut", "a reload completes while the node's network is cut", s.reloadAlone},
			{"agentKilled", "an agent killed in the middle of a reload has it completed by the next", s.agentKilled},
			{"vermagic", "a module with another vermagic flag is refused and never tried", s.vermagic},
			{"symbolCRC", "a module with another symbol CRC is tried once", s.symbolCRC},
			{"rolledBack", "a new build that the kernel refuses brings the previous one back", s.rolledBack},
			{"firmware", "a module finds the firmware that came with it, and takes it along when it goes", s.firmware},
			{"inTree", "a module of the kernel's own makes room, with its user, and both come back", s.inTree},
			{"modprobe", "kmod's modprobe loads and unloads with args, and with rawArgs", s.modprobe},
			{"blacklist", "what a Module replaces is kept out of the host's own loads, while it is there", s.blacklist},
		}, {
			start,
			loaded,
			{"crash", "a module that panics on load is held back, then quarantined, and the node serves", s.crash},
			{"reboot", "after a reboot it is loaded without registry, carrier and operator", s.rebootAlone},
			{"rebootWithoutAPI", "after a reboot without the API server it is loaded as soon as that is back", s.rebootWithoutAPI},
			{"staticPod", "with the static pod, after a reboot it is loaded before the API server is back", s.staticPod},
			{"signature", "where signatures are enforced, a key in UEFI db loads; another key and none are tried once", s.signature},
		}},
		"release": {{
			start,
			{"", "kubelet and API server are of the release", s.kubeletIsOfRelease},
			{"withoutImageVolumes", "the operator finds out that an init container has to deliver, and the module is live", s.loadWithoutImageVolumes},
			{"loaded", "its Module is Ready, and takes it out of the kernel when it goes", s.goesAgain},
		}},
		"dra": {{
			start,
			{"published", "a Module with a DRA driver loads its module and publishes its devices", s.published},
			{"claimed", "an unprivileged pod reads the device that it claimed", s.claimed},
			{"keptForClaim", "with the Module deleted, driver and kernel module stay while a claim is prepared", s.keptForClaim},
			{"goneAfterClaim", "with the pod gone, the claim is unprepared, then driver, kernel module and Module go", s.goneAfterClaim},
		}},
		"operators": {{
			start,
			{"", "the DeviceConfig and Ptemplate operators, deployed as an administrator does", s.deployOperators},
			{"deviceConfig", "the DeviceConfig sample loads its kernel module, offers its devices, and is Ready", s.deviceConfigReady},
			{"deviceConfigRead", "an unprivileged pod reads the devices that it was allocated", s.deviceConfigConsumed},
			{"ptemplate", "the Ptemplate sample loads its kernel module with its parameters, offers its devices, and is Ready", s.ptemplateReady},
			{"ptemplateRead", "its unprivileged consumer is in the status, and reads the devices that it was allocated", s.ptemplateConsumed},
			{"cdi", "containers have their own devices by CDI, and no others", s.cdiOnly},
			{"health", "a device that vanishes is not allocatable until it is back", s.health},
			{"kubeletRestart", "after a restart of the kubelet the device plugins register again, and a new consumer reads its devices", s.kubeletRestart},
			{"deleted", "deleted objects leave the kernel, the node and the API", s.operatorsDeleted},
		}},
		"hub": {{
			{"", "a hub that builds, before Open Cluster Management is there", s.startHub},
			{"", "a ManagedClusterModule says what is missing", s.withoutOCM},
			{"", "Open Cluster Management's kinds come, and two spokes with kernels of their own, each with its work agent", s.hubGrows},
			{"", "by ManifestWorks, each kernel's image is made once, on the hub, and loaded on its spoke", s.works},
			{"", "a hub that restarts writes nothing", s.byWorks(s.hubRestarts)},
			{"", "by ManifestWorks, a bad build stays in the first wave", s.byWorks(s.badBuild)},
			{"", "by ManifestWorks, a spoke that is cut off keeps its module, heals it and catches up", s.byWorks(s.cutOff)},
			{"", "by ManifestWorks, what is deselected or deleted leaves nothing", s.byWorks(s.leaves)},
			{"", "by kubeconfigs, the same", s.directly},
		}},
		"build": {{
			start,
			{"", "toolchain, Buildah, headers and the operator that builds", s.builders},
			{"", "a node that builds, at the machine's own speed", s.startBuilder},
			{"", "a build from a Dockerfile is asked for", s.dockerBegins},
			{"native", "a native build from a ConfigMap is signed, pushed and loaded, under Pod Security restricted", s.nativeSample},
			{"errorLine", "the compiler's line about a mistake is in the condition", s.compilerLine},
			{"exactlyOnce", "20 toggles over all kinds of inputs make one Job per input, and none for a repeat", s.exactlyOnce},
			{"dockerfile", "a build from a Dockerfile is signed, pushed and loaded", s.dockerLoads},
			{"registryWiped", "what the registry forgot is made again when a node needs it, once; a node that holds it goes on, over a reboot, too", s.registryWiped},
			{"neverUnsigned", "of all images that the registry was ever sent, none has an unsigned module", s.neverUnsigned},
		}},
		"dkms": {{
			start,
			{"", "toolchain, Buildah, headers and the operator that builds", s.builders},
			{"", "a node that builds, at the machine's own speed", s.startBuilder},
			{"dkms", "each package is built natively, under Pod Security restricted, signed, pushed and loaded", s.dkms},
			{"dockerfile", "those that could be loaded are built once more by one Dockerfile, signed, pushed and loaded together", s.dkmsDockerfile},
		}},
		"agent": {{
			{"", "kmod and what compares it with the agent", s.benchTools},
			start,
			{"", "the agent and modprobe have loaded the same module in turn", s.loadRatio},
			loaded,
			{"", "an agent with nothing to do was watched", s.idle},
			{"", "the static pod's agent has loaded at a boot without the API server", s.bootTime},
		}},
		"privileges": {{
			start,
			{"", "modules that show what the agent does", s.prepareBehaviours},
			{"limits", "the agent's process has the capabilities of the DaemonSet and no other, seccomp, and cannot gain any", s.limits},
			{"whole", "with all that the DaemonSet allows, all works", s.whole},
			{"withoutEach", "without any one of it, something does not", s.withoutEach},
		}},
	}
}
