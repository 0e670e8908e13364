// SPDX-License-Identifier: Apache-2.0

package reasons

import "github.com/drover-project/drover/api/kmm/v1beta1"

// attention are the reasons that need it, or that somebody asked for.
var attention = []Reason{
	{
		Name: v1beta1.ReasonNoKernelMapping, Class: ClassFinal, Step: StepMapping,
		Meaning: "no kernel mapping matches the node's kernel, or the image of the one that does cannot be named for it",
		Next:    "add a mapping for the kernel named in the message, or correct the variable that it names",
	},
	{
		Name: v1beta1.ReasonImageNotFound, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the registry does not have the image",
		Next:    "push the image, or correct `containerImage`",
	},
	{
		Name: v1beta1.ReasonPullUnauthorized, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the registry refused the pull secrets",
		Next:    "check `imageRepoSecret` and the ServiceAccount's pull secrets",
	},
	{
		Name: v1beta1.ReasonAgentImageUnauthorized, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the registry refused the agent's own image, which the carrier pods in the Module's namespace run, too",
		Next:    "give the Module's ServiceAccount a pull secret for it, or mirror it where none is needed (`--agent-image`)",
	},
	{
		Name: v1beta1.ReasonPullFailed, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the kubelet cannot pull the image for another cause",
		Next:    "read the message; check the registry and the node's network",
	},
	{
		Name: v1beta1.ReasonDeliveryRefused, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the carrier pod was refused or cannot run",
		Next: "read the message: quota, admission, a full node (`OutOfpods`: tried again by itself), or a policy of " +
			"`config/policies` is missing",
	},
	{
		Name: v1beta1.ReasonImageUnreadable, Class: ClassFinal, Step: StepDelivered,
		Meaning: "the image's content cannot be used",
		Next:    "check the paths and file modes named in the message",
	},
	{
		Name: v1beta1.ReasonImageTooLarge, Class: ClassFinal, Step: StepDelivered,
		Meaning: "the image's content exceeds the delivery limit",
		Next:    "put less below `dirName`, or raise the limit",
	},
	{
		Name: v1beta1.ReasonVermagicMismatch, Class: ClassFinal, Step: StepChecks,
		Meaning: "the module was built for another kernel configuration",
		Next:    "build it against this kernel's headers",
	},
	{
		Name: v1beta1.ReasonUnknownSymbol, Class: ClassAttention, Step: StepChecks,
		Meaning: "the kernel lacks a symbol, or its CRC differs",
		Next:    "build against this kernel; check dependencies",
	},
	{
		Name: v1beta1.ReasonDependencyConflict, Class: ClassAttention, Step: StepChecks,
		Meaning: "the kernel refused the module for a symbol, and of a module that it needs another build is live than the image (or " +
			"the node's own tree) has",
		Next: "unload the build that is live (the message names both builds), or build the module against it",
	},
	{
		Name: v1beta1.ReasonMissingDependency, Class: ClassAttention, Step: StepChecks,
		Meaning: "a module that this one needs, or asks the kernel for, exists neither in the image nor on the host",
		Next: "put it into the image, or install it on the node; one that is asked for by an alias (`hmac(sha256)`) must be on the " +
			"node",
	},
	{
		Name: v1beta1.ReasonAgentFailed, Class: ClassAttention,
		Meaning: "the agent itself cannot go on on the node: its state directory, the kubelet's pods directory, or the host's files",
		Next: "read the message: a full or read-only disk, or a directory that is elsewhere on this node (`--state-dir`, " +
			"`--kubelet-pods`), is the usual cause",
	},
	{
		Name: v1beta1.ReasonQuarantined, Class: ClassFinal, Step: StepAllowed,
		Meaning: "the node went down, or the kernel oopsed, while this build was being loaded; it waits, or after two times in a row " +
			"or with the kernel's own evidence it is not loaded for 24 hours",
		Next: "read the node's console and pstore; ship another build, or run `drover retry MODULE [NODE]`. The build goes to no " +
			"further node until then",
	},
	{
		Name: v1beta1.ReasonFirmwareConflict, Class: ClassFinal, Step: StepChecks,
		Meaning: "a firmware file of that name with other content is on the node already",
		Next:    "the message names the file and whose it is; remove it, or take it out of the image",
	},
	{
		Name: v1beta1.ReasonModuleConflict, Class: ClassFinal, Step: StepChecks,
		Meaning: "another Module owns a different build of the same kernel module on the node",
		Next:    "remove one of the two Modules",
	},
	{
		Name: v1beta1.ReasonSignatureRejected, Class: ClassFinal, Step: StepTrusted,
		Meaning: "the kernel refuses the module's signature",
		Next:    "sign it with a key that the node trusts",
	},
	{
		Name: v1beta1.ReasonLockedDown, Class: ClassFinal, Step: StepTrusted,
		Meaning: "the kernel is in lockdown, and loads only what is signed by a key that it trusts",
		Next:    "sign it with such a key, or boot the node without lockdown",
	},
	{
		Name: v1beta1.ReasonLoadPin, Class: ClassFinal, Step: StepTrusted,
		Meaning: "the kernel loads modules only from the file system that LoadPin has pinned",
		Next:    "boot the node without LoadPin's enforcement (`loadpin.enforce=0`), or have the module in the node's own image",
	},
	{
		Name: v1beta1.ReasonMissingFirmware, Class: ClassFinal, Step: StepChecks,
		Meaning: "the module asked for a firmware file that the node does not have, and gave up",
		Next:    "put the file into the image and set `modprobe.firmwarePath`, or install it on the node",
	},
	{
		Name: v1beta1.ReasonModulesDisabled, Class: ClassFinal, Step: StepTrusted,
		Meaning: "`kernel.modules_disabled` is 1 on the node",
		Next:    "reboot the node without that setting",
	},
	{
		Name: v1beta1.ReasonInvalidParameter, Class: ClassFinal,
		Meaning: "the kernel refuses a module parameter",
		Next:    "correct `modprobe.parameters`",
	},
	{
		Name: v1beta1.ReasonNoSuchDevice, Class: ClassFinal,
		Meaning: "the module found no device to drive",
		Next:    "select only nodes that have the device",
	},
	{
		Name: v1beta1.ReasonNotUsable, Class: ClassAttention, Step: StepReady,
		Meaning: "the kernel module is live, and a check of `readyWhen` does not pass: no ready label, and the device plugin is not " +
			"started",
		Next: "look for the device node or sysfs value that the message names; read the node's kernel log, and see whether " +
			"firmware or a udev rule is missing. It is looked at again every few seconds",
	},
	{
		Name: v1beta1.ReasonAlreadyLoadedForeign, Class: ClassFinal, Step: StepChecks,
		Meaning: "another build of the module is live and is not ours",
		Next:    "unload it, or name it in `inTreeModulesToRemove`",
	},
	{
		Name: v1beta1.ReasonInUse, Class: ClassAttention, Step: StepHolders,
		Meaning: "somebody uses the module that shall go, or `spec.rollout.drain` waits for pods to leave the node",
		Next:    "stop the users named in the message, or wait for the pods that it names to end",
	},
	{
		Name: v1beta1.ReasonDrifted, Class: ClassAsAsked,
		Meaning: "the module goes out of the kernel although it is wanted; told from the second time in a boot, until it has stayed " +
			"for ten minutes",
		Next: "find out what unloads it (`status.modules[].observed` of the node's NodeModulesConfig has `repairs` and " +
			"`lastRepair`); it is loaded again each time, after ever longer pauses",
	},
	{
		Name: v1beta1.ReasonRolledBack, Class: ClassFinal,
		Meaning: "the new build was tried and failed, and the previous one serves again",
		Next: "read the message; mend the image or the Module. It is tried again when `nextRetry` says, with the node's next boot, " +
			"or by `drover retry`",
	},
	{
		Name: v1beta1.ReasonRebootRequired, Class: ClassAsAsked, Step: StepHolders,
		Meaning: "the kernel module changes with the node's next boot, because `unloadPolicy` is `OnReboot`",
		Next:    "reboot the node, or set `unloadPolicy: Wait`",
	},
	{
		Name: v1beta1.ReasonTimeout, Class: ClassAttention,
		Meaning: "a kernel call did not return in time",
		Next:    "look at the node's kernel log; a reboot may be needed",
	},
	{
		Name: v1beta1.ReasonLoadFailed, Class: ClassAttention,
		Meaning: "the kernel refused the load with another error",
		Next: "follow the message: set the parameter that the module needs, or read the kernel's lines; where it has neither, read " +
			"the kernel's log on the node",
	},
	{
		Name: v1beta1.ReasonUnloadFailed, Class: ClassAttention, Step: StepHolders,
		Meaning: "the kernel refused the unload with an error other than \"busy\"",
		Next:    "read the kernel's lines in the message",
	},
	{
		Name: v1beta1.ReasonAgentMissing, Class: ClassAttention, Step: StepOrdered, Rank: 3,
		Meaning: "no agent answers on the node",
		Next:    "look at the `drover-agent` pod of that node",
	},
	{
		Name: v1beta1.ReasonNodeNotReady, Class: ClassAttention, Step: StepNode, Rank: 2,
		Meaning: "the node is not Ready",
		Next:    "repair the node; delivery goes on then",
	},
	{
		Name: v1beta1.ReasonWrongKernel, Class: ClassAsAsked, Step: StepOrdered,
		Meaning: "the order was resolved for another kernel than the one that runs",
		Next:    "none after a reboot; the operator renews the order",
	},
	{
		Name: v1beta1.ReasonRecordForeign, Class: ClassAttention,
		Meaning: "the node's record of earlier orders is damaged, or belongs to another cluster or node; shown until the orders that " +
			"stand are carried out",
		Next: "none; nothing was loaded from it. It is kept beside its old place as `record.json.aside`; if nobody cloned or " +
			"re-joined the node, look at its disk",
	},
	{
		Name: v1beta1.ReasonMixedContent, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the kernel module is live everywhere, but one image reference brought different content to different nodes: its tag " +
			"was moved in between",
		Next: "use another tag, or a digest, for other content; or change `imageRebuildTriggerGeneration`, which fetches it again " +
			"on all nodes",
	},
	{
		Name: v1beta1.ReasonPeerActive, Class: ClassAttention, Step: StepAllowed,
		Meaning: "KMM's operator is at work, so Drover watches and changes nothing but conditions",
		Next:    "stop one of the two; Drover goes on once the other's pod is gone or its Lease has not changed for its duration",
	},
	{
		Name: v1beta1.ReasonCRDIncompatible, Class: ClassAttention, Step: StepAllowed,
		Meaning: "somebody installed other CustomResourceDefinitions of the same names, which lack what Drover needs; it changes " +
			"nothing",
		Next: "apply `config/crd` again; see the message for what is missing",
	},
	{
		Name: v1beta1.ReasonAbandoned, Class: ClassAttention,
		Meaning: "only in an event: the Module went while nodes still had it, because they are dead or `spec.deletionTimeout` is over",
		Next: "none for nodes that come back: the order to unload stands there. For the others, see the reason that the event " +
			"gives each",
	},
	{
		Name: v1beta1.ReasonUnclaimed, Class: ClassAttention,
		Meaning: "loaded by the agent, and no order names it",
		Next:    "apply the Module again, which claims it; delete the Module after that to unload it",
	},
	{
		Name: v1beta1.ReasonRolloutPaused, Class: ClassAttention,
		Meaning: "no further node gets the change: a node failed with it (the message names it), or `spec.rollout.paused` is set",
		Next: "mend the image or the Module, which begins anew; or unset `paused`; `pauseOnFailure: false` goes on in spite of " +
			"failures",
	},
	{
		Name: v1beta1.ReasonDrainBlocked, Class: ClassAttention,
		Meaning: "`spec.rollout.drain` cannot empty a node: the cordon or an eviction is refused, by a PodDisruptionBudget, an " +
			"admission webhook or a policy; a pod needs `drainOptions.force` or `deleteEmptyDirData`; or `drainOptions.timeout` " +
			"is over. The node keeps what it has, and it is asked again every few seconds",
		Next: "the message names the pod and who refused: see to the budget, the webhook or the policy, set the option that it " +
			"names, or move the pod yourself",
	},
	{
		Name: v1beta1.ReasonMassDeselection, Class: ClassAttention,
		Meaning: "more nodes than `spec.rollout.maxUnavailable` lost the selector's labels or their mapping, and keep the kernel " +
			"module until that is confirmed",
		Next: "bring the labels or the mapping back; or `kubectl annotate module NAME --overwrite " +
			"drover.dev/confirm-deselection=$(date -u +%FT%TZ)`, which holds for an hour by the operator's clock",
	},
	{
		Name: v1beta1.ReasonPaused, Class: ClassAsAsked, Step: StepAllowed, Rank: 1,
		Meaning: "paused by annotation: watched and reported, nothing loaded or unloaded",
		Next:    "remove `drover.dev/paused` from the Module, or from the nodes that the message names",
	},
	{
		Name: v1beta1.ReasonBuildFailed, Class: ClassAttention,
		Meaning: "the build of an image failed; tried again with pauses, a few times or, where the message names an outage, until it " +
			"is over",
		Next: "read the compiler's lines in the message, or the log of the Job's container `build`; mend the source, or run " +
			"`drover retry MODULE`",
	},
	{
		Name: v1beta1.ReasonSignFailed, Class: ClassAttention,
		Meaning: "kernel modules of an image could not be signed",
		Next:    "read the message: the Secrets of `sign` and `filesToSign` are the usual cause",
	},
	{
		Name: v1beta1.ReasonPushFailed, Class: ClassAttention,
		Meaning: "the registry did not take the image; tried again until it does",
		Next:    "check `imageRepoSecret` and `registryTLS`; `drover retry MODULE` tries again at once",
	},
	{
		Name: v1beta1.ReasonCheckFailed, Class: ClassAttention,
		Meaning: "it could not be found out whether the registry has the image; tried again until it is",
		Next:    "check `imageRepoSecret`, `registryTLS` and the way from the Job's pod to the registry",
	},
	{
		Name: v1beta1.ReasonBuildInputMissing, Class: ClassAttention,
		Meaning: "what an image is to be built from is not there, or does not say enough",
		Next:    "make the ConfigMap, or set the field that the message names",
	},
	{
		Name: v1beta1.ReasonImageConflict, Class: ClassFinal,
		Meaning: "another image of the namespace that is made in the cluster, for another kernel, processor or Module, is pushed to " +
			"the same name; the older one keeps it, and this one is not made",
		Next: "let the name tell them apart, as the message says: `${KERNEL_FULL_VERSION}`, `${NODE_ARCH}`, `${MOD_NAME}` in " +
			"`containerImage` (or `unsignedImage`)",
	},
	{
		Name: v1beta1.ReasonPreflightFailed, Class: ClassAttention,
		Meaning: "of a `PreflightValidation`: some Modules are not ready for its kernel",
		Next:    "`status.modules` has the reason of each; do not give nodes the kernel before each is mended",
	},
	{
		Name: v1beta1.ReasonDeviceClassConflict, Class: ClassFinal,
		Meaning: "a DeviceClass of a name in `spec.dra.deviceClasses` exists and was not made for this Module; it is left as it is",
		Next:    "choose another name, or delete or rename the one that is there; tried again twice a minute",
	},
	{
		Name: v1beta1.ReasonModprobeUnsupported, Class: ClassFinal, Step: StepChecks,
		Meaning: "`args` or `rawArgs` need kmod's `modprobe`, which the agent's image was built without",
		Next:    "build the image with it (`make docker-build` where `apt-get` is), or use `moduleName` and `parameters`",
	},
	{
		Name: v1beta1.ReasonUnsupported, Class: ClassFinal,
		Meaning: "this version, or this cluster, does not do what the Module asks for",
		Next: "see the message; in place of `modprobe.modprobedDir`, use `parameters` and `modulesLoadingOrder`; `spec.dra` needs " +
			"Kubernetes 1.34, and a restart of the operator after the cluster's upgrade",
	},
	{
		Name: v1beta1.ReasonUnsupportedNode, Class: ClassFinal, Step: StepSelected,
		Meaning: "the selector chooses nodes, and on none of them can Drover's agent run: another operating system or processor, or " +
			"no kernel of its own",
		Next: "choose Linux nodes; the message says what each node is",
	},
}
