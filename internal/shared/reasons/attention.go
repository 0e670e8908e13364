// SPDX-License-Identifier: Apache-2.0

package reasons

import "github.com/drover-project/drover/api/kmm/v1beta1"

// attention are the reasons that need it, or that were asked for.
var attention = []Reason{
	{
		Name: v1beta1.ReasonNoKernelMapping, Class: ClassFinal, Step: StepMapping,
		Meaning: "no kernel mapping matches the node's kernel, or Drover cannot name the image of the mapping that does",
		Next:    "add a mapping for the kernel named in the message, or correct the variable that it names",
	},
	{
		Name: v1beta1.ReasonInvalidKernelVersion, Class: ClassFinal, Step: StepMapping,
		Meaning: "this is no kernel version, or no processor. Nothing is built for it, and a node that reports it keeps what it has",
		Next: "correct the name. If a node reports it, compare its `status.nodeInfo.kernelVersion` with `uname -r` there: a kubelet that " +
			"lies may be in foreign hands, so cordon the node and find out",
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
		Meaning: "the registry refused the agent's own image, which carrier pods in the Module's namespace also run",
		Next:    "give the Module's ServiceAccount a pull secret for it, or mirror the image (`--agent-image`)",
	},
	{
		Name: v1beta1.ReasonPullFailed, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the kubelet cannot pull the image for another reason",
		Next:    "read the message; check the registry and the node's network",
	},
	{
		Name: v1beta1.ReasonDeliveryRefused, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the API server refused the carrier pod, or it cannot run",
		Next:    "read the message: quota, admission, a full node (`OutOfpods`, tried again), or a missing policy of `config/policies`",
	},
	{
		Name: v1beta1.ReasonImageUnreadable, Class: ClassFinal, Step: StepDelivered,
		Meaning: "the image's content cannot be used",
		Next:    "check the paths and file modes named in the message",
	},
	{
		Name: v1beta1.ReasonImageTooLarge, Class: ClassFinal, Step: StepDelivered,
		Meaning: "the image's content exceeds the delivery limit",
		Next:    "put less below `dirName`",
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
		Meaning: "the kernel refused a symbol, and a module that this one needs is live in another build than the image or the node has",
		Next:    "unload the live build (the message names both builds), or build the module against it",
	},
	{
		Name: v1beta1.ReasonMissingDependency, Class: ClassAttention, Step: StepChecks,
		Meaning: "a module that this one needs, or asks the kernel for, exists neither in the image nor on the node",
		Next:    "put it into the image, or install it on the node; an alias (`hmac(sha256)`) must be on the node",
	},
	{
		Name: v1beta1.ReasonAgentFailed, Class: ClassAttention,
		Meaning: "the agent cannot use its state directory, the kubelet's pods directory or the host's files, or it gives a reason that " +
			"this version of Drover does not know, which the message begins with",
		Next: "read the message: usually a full or read-only disk, or another directory (`--state-dir`, `--kubelet-pods`). If it begins with " +
			"a reason, give agent and operator the same version",
	},
	{
		Name: v1beta1.ReasonQuarantined, Class: ClassFinal, Step: StepAllowed,
		Meaning: "the node went down, or the kernel oopsed, during a load of this build. After two strikes or evidence: not loaded for 24 hours",
		Next: "read the node's console and pstore; ship another build, or run `drover retry MODULE [NODE]`. No further node gets the " +
			"build until then",
	},
	{
		Name: v1beta1.ReasonFirmwareConflict, Class: ClassFinal, Step: StepChecks,
		Meaning: "the node already has a firmware file of that name with other content",
		Next:    "remove the file that the message names, or take it out of the image",
	},
	{
		Name: v1beta1.ReasonModuleConflict, Class: ClassFinal, Step: StepChecks,
		Meaning: "another Module owns a different build of the same kernel module on the node",
		Next:    "remove one of the two Modules",
	},
	{
		Name: v1beta1.ReasonSignatureRejected, Class: ClassFinal, Step: StepTrusted,
		Meaning: "the kernel refuses the module's signature",
		Next:    "sign the module with a key that the node trusts",
	},
	{
		Name: v1beta1.ReasonLockedDown, Class: ClassFinal, Step: StepTrusted,
		Meaning: "the kernel is in lockdown and loads only modules that are signed with a key that it trusts",
		Next:    "sign the module with such a key, or boot the node without lockdown",
	},
	{
		Name: v1beta1.ReasonLoadPin, Class: ClassFinal, Step: StepTrusted,
		Meaning: "the kernel loads modules only from the file system that LoadPin has pinned",
		Next:    "boot the node without LoadPin (`loadpin.enforce=0`), or ship the module in the node's own image",
	},
	{
		Name: v1beta1.ReasonSELinux, Class: ClassAttention, Step: StepTrusted,
		Meaning: "SELinux denies it to the agent, by its policy or by its boolean `secure_mode_insmod`",
		Next: "on the node, look at `ausearch -m avc -c drover-kcall`, and allow the agent's type (`spc_t`) what is denied; or " +
			"`setsebool -P secure_mode_insmod off`",
	},
	{
		Name: v1beta1.ReasonMissingFirmware, Class: ClassFinal, Step: StepChecks,
		Meaning: "the module asked for a firmware file that the node does not have",
		Next:    "put the file into the image and set `modprobe.firmwarePath`, or install it on the node",
	},
	{
		Name: v1beta1.ReasonModulesDisabled, Class: ClassFinal, Step: StepTrusted,
		Meaning: "`kernel.modules_disabled` is 1 on the node",
		Next:    "unset it and reboot the node",
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
		Meaning: "the kernel module is live, but a check of `readyWhen` fails: no ready label, no device plugin",
		Next: "look for the device node or sysfs value in the message; read the node's kernel log; check firmware and udev rules. " +
			"Drover checks again every few seconds",
	},
	{
		Name: v1beta1.ReasonAlreadyLoadedForeign, Class: ClassFinal, Step: StepChecks,
		Meaning: "another build of the module is live, and Drover did not load it",
		Next:    "unload it, or name it in `inTreeModulesToRemove`",
	},
	{
		Name: v1beta1.ReasonInUse, Class: ClassAttention, Step: StepHolders,
		Meaning: "the module to be unloaded is in use, `spec.rollout.drain` waits for pods to leave the node, or the pod of a DRA driver does " +
			"not end, without which the module cannot go",
		Next: "stop the users that the message names, or wait for its pods to end",
	},
	{
		Name: v1beta1.ReasonDrifted, Class: ClassAsAsked,
		Meaning: "the wanted module keeps disappearing from the kernel: at least twice in this boot, until it has stayed for ten minutes",
		Next: "find out what unloads it (`repairs` and `lastRepair` in `status.modules[].observed` of the NodeModulesConfig); Drover " +
			"loads it again each time, after ever longer pauses",
	},
	{
		Name: v1beta1.ReasonParametersDiffer, Class: ClassAttention,
		Meaning: "the kernel module is live with other parameters than `modprobe.parameters`: it was loaded before Drover came to it, or it " +
			"lacks one of them",
		Next: "keep the node from loading it first (initramfs, udev, `modules-load.d`), then reboot the node or unload the module there; " +
			"correct the name of a parameter that the module lacks",
	},
	{
		Name: v1beta1.ReasonDependencyKept, Class: ClassAttention,
		Meaning: "the kernel module is live with another build of a module that it needs than its image has: that one was live before, or " +
			"another Module uses it, too",
		Next: "reboot the node, or unload all Modules that use the one in the message there",
	},
	{
		Name: v1beta1.ReasonRolledBack, Class: ClassFinal,
		Meaning: "the new build failed, and the previous one serves again",
		Next: "read the message; fix the image or the Module. Drover tries again at `nextRetry`, at the node's next boot, or on " +
			"`drover retry`",
	},
	{
		Name: v1beta1.ReasonRebootRequired, Class: ClassAsAsked, Step: StepHolders,
		Meaning: "`unloadPolicy` is `OnReboot`, so the kernel module changes at the node's next boot",
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
		Next: "follow the message: set the parameter that the module needs, or read the kernel's lines; without either, read the kernel " +
			"log on the node",
	},
	{
		Name: v1beta1.ReasonUnloadFailed, Class: ClassAttention, Step: StepHolders,
		Meaning: "the kernel refused the unload with an error other than \"busy\"",
		Next:    "read the kernel's lines in the message",
	},
	{
		Name: v1beta1.ReasonAgentMissing, Class: ClassAttention, Step: StepOrdered, Rank: 3,
		Meaning: "no agent answers on the node: it fetches no image, or says nothing of an order for minutes",
		Next:    "check the `drover-agent` pod of that node",
	},
	{
		Name: v1beta1.ReasonNodeNotReady, Class: ClassAttention, Step: StepNode, Rank: 2,
		Meaning: "the node is not Ready",
		Next:    "repair the node; the delivery then goes on",
	},
	{
		Name: v1beta1.ReasonWrongKernel, Class: ClassAsAsked, Step: StepOrdered,
		Meaning: "the order is for another kernel than the one that runs",
		Next:    "none after a reboot: the operator renews the order",
	},
	{
		Name: v1beta1.ReasonRecordForeign, Class: ClassAttention,
		Meaning: "the node's record of earlier orders is damaged, or from another cluster or node; shown until all orders are carried out",
		Next: "none: nothing was loaded from it. The agent keeps it as `record.json.aside`; if nobody cloned or re-joined the node, " +
			"check its disk",
	},
	{
		Name: v1beta1.ReasonMixedContent, Class: ClassAttention, Step: StepDelivered,
		Meaning: "the kernel module is live everywhere, but one image reference brought different content: its tag was moved",
		Next: "use another tag, or a digest, for other content; or change `imageRebuildTriggerGeneration`, which fetches the image again " +
			"on all nodes",
	},
	{
		Name: v1beta1.ReasonPeerActive, Class: ClassAttention, Step: StepAllowed,
		Meaning: "KMM's operator is running, so Drover changes nothing but conditions",
		Next:    "stop one of the two; Drover goes on once KMM's pod is gone or its Lease has expired",
	},
	{
		Name: v1beta1.ReasonCRDIncompatible, Class: ClassAttention, Step: StepAllowed,
		Meaning: "the cluster's CustomResourceDefinitions lack what Drover needs, so it changes nothing",
		Next:    "apply `config/crd` again; the message says what is missing",
	},
	{
		Name: v1beta1.ReasonWriteRefused, Class: ClassAttention, Step: StepAllowed,
		Meaning: "the API server refuses to change the Module, a node's NodeModulesConfig or labels, or to taint devices: because of rights, " +
			"an admission policy, or a webhook, also one without a server; what needs no such write goes on",
		Next: "the message names what is refused, and by whom: change the policy or webhook, or give Drover's operator its roles back " +
			"(`drover doctor`); start the server of a webhook that does not answer, or delete its configuration if its operator is gone",
	},
	{
		Name: v1beta1.ReasonAbandoned, Class: ClassAttention,
		Meaning: "only in an event: the Module went while nodes still had it: they are dead, or `spec.deletionTimeout` is over",
		Next:    "none for nodes that come back: the order to unload stays. For the others, see the reason that the event gives each",
	},
	{
		Name: v1beta1.ReasonUnclaimed, Class: ClassAttention,
		Meaning: "the agent loaded the module, and no order names it",
		Next:    "apply the Module again to claim it; to unload it, delete the Module afterwards",
	},
	{
		Name: v1beta1.ReasonRolloutPaused, Class: ClassAttention,
		Meaning: "the rollout stands still: a node failed with the change (the message names it), or `spec.rollout.paused` is set",
		Next:    "fix the image or the Module, which starts anew; or unset `paused`; `pauseOnFailure: false` goes on despite failures",
	},
	{
		Name: v1beta1.ReasonDrainBlocked, Class: ClassAttention,
		Meaning: "`spec.rollout.drain` cannot empty a node: a PodDisruptionBudget, an admission webhook or a policy refuses the cordon or " +
			"an eviction; a pod needs `drainOptions.force` or `deleteEmptyDirData`; or `drainOptions.timeout` is over. The node keeps " +
			"what it has, and Drover asks again every few seconds",
		Next: "the message names the pod and who refused: change the budget, the webhook or the policy, set the option, or move the pod " +
			"yourself",
	},
	{
		Name: v1beta1.ReasonMassDeselection, Class: ClassAttention,
		Meaning: "more nodes than `spec.rollout.maxUnavailable` lost the selector's labels or their mapping, have a taint that " +
			"asks for the unload (`Tainted`), or the Module lost its `moduleLoader`; they keep the kernel module",
		Next: "restore the labels, the mapping or `spec.moduleLoader`, or remove the taints; or confirm for an hour, by the operator's " +
			"clock: `kubectl annotate module NAME --overwrite drover.dev/confirm-deselection=$(date -u +%FT%TZ)`",
	},
	{
		Name: v1beta1.ReasonPaused, Class: ClassAsAsked, Step: StepAllowed, Rank: 1,
		Meaning: "paused by annotation: Drover reports, and loads and unloads nothing",
		Next:    "remove `drover.dev/paused` from the Module, or from the nodes that the message names",
	},
	{
		Name: v1beta1.ReasonTainted, Class: ClassAsAsked, Step: StepTolerated, Rank: 1,
		Meaning: "a taint whose key the operator's `--unload-taints` lists asks for the unload, and the Module does not tolerate it",
		Next:    "tolerate the taint that the message names in `spec.tolerations`, or remove it from the node: it is then loaded again",
	},
	{
		Name: v1beta1.ReasonBuildFailed, Class: ClassAttention,
		Meaning: "an image build failed; Drover tries again with pauses, a few times or, after an outage, until it is over",
		Next: "read the compiler's lines in the message or the log of the Job's container `build`; fix the source, or run `drover " +
			"retry MODULE`",
	},
	{
		Name: v1beta1.ReasonSignFailed, Class: ClassAttention,
		Meaning: "the kernel modules of an image could not be signed",
		Next:    "read the message; check the Secrets of `sign`, and `filesToSign`",
	},
	{
		Name: v1beta1.ReasonPushFailed, Class: ClassAttention,
		Meaning: "the registry did not take the image; Drover tries again until it does",
		Next:    "check `imageRepoSecret` and `registryTLS`; `drover retry MODULE` tries again at once",
	},
	{
		Name: v1beta1.ReasonCheckFailed, Class: ClassAttention,
		Meaning: "Drover could not find out whether the registry has the image; it tries again",
		Next:    "check `imageRepoSecret`, `registryTLS` and the network from the Job's pod to the registry",
	},
	{
		Name: v1beta1.ReasonBuildInputMissing, Class: ClassAttention,
		Meaning: "the input of an image build is missing or incomplete",
		Next:    "create the ConfigMap, or set the field that the message names",
	},
	{
		Name: v1beta1.ReasonImageConflict, Class: ClassFinal,
		Meaning: "an older image, for another kernel, processor or Module, is pushed to the same name; this one is not made",
		Next:    "make the names differ, by `${KERNEL_FULL_VERSION}`, `${NODE_ARCH}` or `${MOD_NAME}` in `containerImage` or `unsignedImage`",
	},
	{
		Name: v1beta1.ReasonPreflightFailed, Class: ClassAttention,
		Meaning: "of a `PreflightValidation`: some Modules are not ready for its kernel",
		Next:    "fix each by its reason in `status.modules` before you give nodes the kernel",
	},
	{
		Name: v1beta1.ReasonDeviceClassConflict, Class: ClassFinal,
		Meaning: "a DeviceClass of a name in `spec.dra.deviceClasses` exists and does not belong to this Module; Drover does not touch it",
		Next:    "choose another name, or delete or rename the existing DeviceClass; Drover tries again twice a minute",
	},
	{
		Name: v1beta1.ReasonModprobeUnsupported, Class: ClassFinal, Step: StepChecks,
		Meaning: "`args` or `rawArgs` need kmod's `modprobe`, which the agent's image lacks",
		Next:    "build the image with it (`make docker-build` where `apt-get` is), or use `moduleName` and `parameters`",
	},
	{
		Name: v1beta1.ReasonUnsupported, Class: ClassFinal,
		Meaning: "this version, or this cluster, does not support what the Module asks for",
		Next: "see the message; instead of `modprobe.modprobedDir`, use `parameters` and `modulesLoadingOrder`; `spec.dra` needs Kubernetes " +
			"1.34, and a restart of the operator after the upgrade",
	},
	{
		Name: v1beta1.ReasonPolicyDenied, Class: ClassFinal, Step: StepAllowed,
		Meaning: "a `ModulePolicy` does not allow what the Module would load on the node; what the node has stays",
		Next:    "change the Module's field that the message names, or ask an administrator of the cluster to change the ModulePolicy",
	},
	{
		Name: v1beta1.ReasonStartupTaintDenied, Class: ClassFinal,
		Meaning: "the Module may not name its `startupTaint`: the operator removes it from no node for this Module",
		Next: "register nodes with a taint of the Module's namespace, `NAMESPACE.startup.drover.dev/NAME`, and name that; or ask an " +
			"administrator to list the key in the operator's `--startup-taints`",
	},
	{
		Name: v1beta1.ReasonUnsupportedNode, Class: ClassFinal, Step: StepSelected,
		Meaning: "no selected node can run Drover's agent: another operating system or processor, or no kernel of its own",
		Next:    "select Linux nodes; the message says what each node is",
	},
}
