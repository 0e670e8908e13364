// SPDX-License-Identifier: Apache-2.0

package monitoring

import "github.com/drover-project/drover/api/kmm/v1beta1"

// ofImages are about the way of an image to a node.
var ofImages = []Alert{
	{
		Name: "DroverKernelUncovered", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonNoKernelMapping, v1beta1.ReasonInvalidKernelVersion},
		Summary: "Nodes run a kernel for which a Module names no image",
		Text:    "No kernel mapping matches the kernel of these nodes",
		Next:    "add a mapping, or put the nodes back to a kernel that has one",
	},
	{
		Name: "DroverBuildFailed", Severity: SeverityWarning, For: usual,
		Reasons: []string{
			v1beta1.ReasonBuildFailed, v1beta1.ReasonSignFailed, v1beta1.ReasonPushFailed, v1beta1.ReasonCheckFailed,
			v1beta1.ReasonBuildInputMissing, v1beta1.ReasonImageConflict,
		},
		Summary: "An image of a kernel module cannot be built, signed or pushed",
		Text:    "These nodes wait for an image whose build, signature or push fails",
		Next:    "the Job's log has the compiler's lines",
	},
	{
		Name: "DroverImageMissing", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonImageNotFound},
		Summary: "The registry does not have the image of a kernel module",
		Text:    "The registry does not have the image for these nodes",
		Next:    "push it, or correct containerImage",
	},
	{
		Name: "DroverPullUnauthorized", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonPullUnauthorized, v1beta1.ReasonAgentImageUnauthorized},
		Summary: "The registry refuses the pull secrets of a Module",
		Text:    "The registry refuses these nodes the image",
		Next:    "check imageRepoSecret, the ServiceAccount's pull secrets, and whether a password has expired",
	},
	{
		Name: "DroverPullFailed", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonPullFailed},
		Summary: "Nodes cannot pull the image of a kernel module",
		Text:    "These nodes cannot pull the image: the registry or the network fails",
		Next:    "several Modules at once point to the registry",
	},
	{
		Name: "DroverDeliveryRefused", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonDeliveryRefused},
		Summary: "The cluster refuses the pods that bring images to nodes",
		Text:    "The API server or the kubelet refuses the carrier pod",
		Next:    "look for a quota, an admission policy, or a policy of config/policies that is missing",
	},
	{
		Name: "DroverDeliveryHangs", Severity: SeverityInfo, For: "10m",
		Reasons:  []string{v1beta1.ReasonAwaitingDelivery},
		Summary:  "Image pulls for a Module take more than ten minutes",
		Text:     "The carrier pod has been there for more than ten minutes and has not started",
		Unproved: "it takes longer than a proof may",
	},
	{
		Name: "DroverImageUnusable", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonImageUnreadable, v1beta1.ReasonImageTooLarge},
		Summary: "The content of a Module's image cannot be used",
		Text:    "The image was pulled, and its content cannot be used",
		Next:    "check paths and file modes in the image",
	},
}

// ofLoads are about what the kernel says.
var ofLoads = []Alert{
	{
		Name: "DroverModuleDoesNotFit", Severity: SeverityWarning, For: usual,
		Reasons: []string{
			v1beta1.ReasonVermagicMismatch, v1beta1.ReasonUnknownSymbol, v1beta1.ReasonDependencyConflict, v1beta1.ReasonMissingDependency,
		},
		Summary: "A kernel module was built for another kernel, or lacks a dependency",
		Text:    "The module does not fit the kernel of these nodes",
		Next:    "build it against their kernel's headers",
	},
	{
		Name: "DroverNotTrusted", Severity: SeverityWarning, For: usual,
		Reasons: []string{
			v1beta1.ReasonSignatureRejected, v1beta1.ReasonLockedDown, v1beta1.ReasonLoadPin, v1beta1.ReasonModulesDisabled,
			v1beta1.ReasonSELinux,
		},
		Summary: "Kernels load no module that they do not trust",
		Text:    "Secure Boot, lockdown, LoadPin, SELinux or kernel.modules_disabled keeps the module out of these kernels",
		Next:    "sign the module with a key that the nodes trust",
	},
	{
		Name: "DroverLoadRefused", Severity: SeverityWarning, For: usual,
		Reasons: []string{
			v1beta1.ReasonLoadFailed, v1beta1.ReasonInvalidParameter, v1beta1.ReasonNoSuchDevice, v1beta1.ReasonMissingFirmware,
		},
		Summary: "A kernel module refuses to start on nodes",
		Text:    "The module's own start fails: a parameter, a device, firmware, or the driver itself",
	},
	{
		Name: "DroverConflict", Severity: SeverityWarning, For: usual,
		Reasons: []string{
			v1beta1.ReasonModuleConflict, v1beta1.ReasonFirmwareConflict, v1beta1.ReasonAlreadyLoadedForeign, v1beta1.ReasonParametersDiffer,
			v1beta1.ReasonDependencyKept,
		},
		Summary: "Another owner has the kernel module or its firmware on nodes",
		Text:    "Another Module, or a load by hand, has what this Module asks for",
	},
	{
		Name: "DroverUnsupported", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonUnsupported, v1beta1.ReasonModprobeUnsupported},
		Summary: "A Module asks for what this version or this node cannot do",
		Text:    "The Module asks for something that is not supported there",
	},
	{
		Name: "DroverQuarantined", Severity: SeverityCritical, For: usual,
		Reasons: []string{v1beta1.ReasonQuarantined},
		Summary: "A kernel module took nodes down, and the crash fuse holds it",
		Text:    "Loads of this build took a node down or made its kernel oops; no further node gets it",
		Next:    "read the console and pstore of the node before `drover retry`",
	},
	{
		Name: "DroverKernelCallStuck", Severity: SeverityCritical, For: usual,
		Reasons: []string{v1beta1.ReasonTimeout},
		Summary: "A load or unload never returned from the kernel",
		Text:    "A kernel call about the module did not return in time; such a node may need a reboot",
	},
	{
		Name: "DroverNotUsable", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonNotUsable},
		Summary: "A kernel module is live, and its device does not appear",
		Text:    "The module is live, and a check of readyWhen fails: no ready label, no device plugin",
	},
	{
		Name: "DroverDrifted", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonDrifted},
		Summary: "A kernel module keeps disappearing and is loaded again and again",
		Text:    "Something on these nodes unloads the module; Drover repairs it after ever longer pauses",
		Next:    "find what unloads it: status.modules[].observed of the NodeModulesConfig counts the repairs",
	},
}

// ofChanges are about upgrades and removals.
var ofChanges = []Alert{
	{
		Name: "DroverRolloutStalled", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonRolloutPaused},
		Expr: "drover_module_nodes{state=\"waiting\"} > 0\n" +
			"and on (namespace, name) sum by (namespace, name) (drover_module_failing_nodes) > 0",
		Summary: "Nodes wait for a change that fails elsewhere",
		Text:    "These nodes wait, while others of the Module fail with the change",
		Next:    "fix the Module or its image: that starts the rollout anew",
	},
	{
		Name: "DroverRolledBack", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonRolledBack},
		Summary: "A new build failed, and the previous one serves again",
		Text:    "The new build failed on these nodes, which went back to the one before",
	},
	{
		Name: "DroverDrainBlocked", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonDrainBlocked},
		Summary: "A node cannot be emptied for its change",
		Text:    "A PodDisruptionBudget, a webhook or a pod keeps these nodes from being emptied",
	},
	{
		Name: "DroverOldBuildStays", Severity: SeverityWarning, For: usual,
		Reasons: []string{v1beta1.ReasonInUse, v1beta1.ReasonUnloadFailed},
		Summary: "A kernel module that should go is still there",
		Text:    "The module is in use, or the kernel does not let it go",
		Next:    "stop its users",
	},
	{
		Name: "DroverRebootRequired", Severity: SeverityInfo, For: usual,
		Reasons: []string{v1beta1.ReasonRebootRequired},
		Summary: "A change of a kernel module waits for reboots",
		Text:    "unloadPolicy is OnReboot, so the change comes with the next boot of these nodes",
	},
	{
		Name: "DroverNodesKeepWaiting", Severity: SeverityInfo, For: "30m",
		Reasons: []string{v1beta1.ReasonNodeNotReady, v1beta1.ReasonAgentMissing},
		Expr: "drover_module_nodes{state=\"waiting\"} > 0\n" +
			"unless on (namespace, name) changes(drover_module_nodes{state=\"ready\"}[10m]) > 0",
		Summary:  "Nodes of a Module are away, paused, or wait for their turn",
		Text:     "Nothing has changed for half an hour: the nodes or their agents are away, or the Module is paused",
		Unproved: "it takes longer than a proof may",
	},
}

// leader marks the series of the operator that leads: only that one has any of the others.
const leader = " and on (job, instance) drover_load_duration_seconds_count"

// ofDrover are about Drover itself.
var ofDrover = []Alert{
	{
		Name: "DroverAgentFailed", Severity: SeverityWarning, For: usual,
		Reasons:  []string{v1beta1.ReasonAgentFailed, v1beta1.ReasonRecordForeign},
		Summary:  "Drover's agent cannot work on nodes",
		Text:     "The agent cannot use its directories, or its record of orders is not its own",
		Next:     "look for a full or read-only disk",
		Unproved: "the agents of hollow nodes share one disk; the agent's own tests have it",
	},
	{
		Name: "DroverOperatorDown", Severity: SeverityCritical, For: "40s",
		Expr:    "absent(drover_load_duration_seconds_count)",
		Summary: "No operator of Drover leads",
		Text:    "Nothing serves the metrics of Drover's leading operator: no Module changes, and no other alert of Drover can fire",
		Next:    "kubectl -n drover-system get pods,leases; kubectl -n drover-system logs deployment/drover-operator",
	},
	{
		Name: "DroverWritesRefused", Severity: SeverityCritical, For: usual,
		Expr: "sum by (job, instance) (increase(rest_client_requests_total{code=~\"401|403\",method!=\"GET\"}[2m])" + leader + ") > 0\n" +
			"unless on () sum(drover_module_failing_nodes{reason=~\"DeliveryRefused|DrainBlocked\"}) > 0",
		Summary: "The API server refuses what Drover's operator writes",
		Text:    "In two minutes, the API server refused {{ $value | humanize }} of the operator's writes, not only carrier pods",
		Next:    "apply config/rbac and config/policies of this version again, and look for webhooks of others",
	},
}

// Silent are reasons without an alert, and why.
var Silent = map[string]string{
	v1beta1.ReasonPaused:              "an administrator asked for it",
	v1beta1.ReasonWrongKernel:         "it passes: the operator renews the order after a reboot",
	v1beta1.ReasonUnclaimed:           "it passes: the operator claims what it finds, or an administrator left it there",
	v1beta1.ReasonAbandoned:           "it is an event of a Module that is gone",
	v1beta1.ReasonMixedContent:        "the module is live everywhere, and no metric counts it",
	v1beta1.ReasonPeerActive:          "no metric counts it: the Module's conditions and an event say it",
	v1beta1.ReasonCRDIncompatible:     "no metric counts it: the Module's conditions and an event say it",
	v1beta1.ReasonWriteRefused:        "no metric counts it: the Module's conditions and an event say it",
	v1beta1.ReasonMassDeselection:     "no metric counts it: the nodes keep the module, and the Module's conditions say it",
	v1beta1.ReasonPreflightFailed:     "it answers a question whose asker waits for it",
	v1beta1.ReasonDeviceClassConflict: "no metric counts it: the Module's conditions and an event say it",
	v1beta1.ReasonPolicyDenied:        "an administrator decided it: the Module's conditions and an event say it",
	v1beta1.ReasonStartupTaintDenied:  "an administrator decides it: the Module's conditions say it",
	v1beta1.ReasonTainted:             "an administrator, or a tool of theirs, asked for it",
	v1beta1.ReasonUnsupportedNode:     "no node counts that cannot run an agent",
}
