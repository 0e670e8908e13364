// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Condition types of a Module. All have positive polarity but ConditionStalled; none is transient.
const (
	// ConditionReady sums up the others: True when everything this Module asks for is there on every node it selects.
	ConditionReady = "Ready"
	// ConditionKernelsCovered is True when every selected node's kernel has a mapping.
	ConditionKernelsCovered = "KernelsCovered"
	// ConditionImagesAvailable is True when every image that is built or signed in the cluster for a selected node's kernel is there.
	ConditionImagesAvailable = "ImagesAvailable"
	// ConditionLoaded is True when the kernel module is live on every desired node.
	ConditionLoaded = "Loaded"
	// ConditionDevicesReady is True when the device plugin or DRA driver is ready on every node with the module.
	ConditionDevicesReady = "DevicesReady"
	// ConditionStalled is True when nothing that is missing will come by itself, and is not there otherwise, as kstatus has it.
	ConditionStalled = "Stalled"
)

// Reasons of conditions that stand for "all is well" or "on its way".
const (
	// ReasonReady: everything asked for is there.
	ReasonReady = "Ready"
	// ReasonAllKernelsCovered: every selected node's kernel has a mapping.
	ReasonAllKernelsCovered = "AllKernelsCovered"
	// ReasonLoaded: live on every desired node.
	ReasonLoaded = "Loaded"
	// ReasonLoading: some nodes are on their way and none has failed.
	ReasonLoading = "Loading"
	// ReasonUnloading: the Module is being deleted, or loads nothing any more, and nodes still have it.
	ReasonUnloading = "Unloading"
	// ReasonNoNodes: the selector chooses no eligible node.
	ReasonNoNodes = "NoNodes"
	// ReasonNotRequested: the Module does not ask for this.
	ReasonNotRequested = "NotRequested"
	// ReasonDevicesReady: the device plugin or DRA driver is ready on every node with the module.
	ReasonDevicesReady = "DevicesReady"
	// ReasonRollingOut: a change is on its way from node to node, and these nodes wait for their turn with what they have.
	ReasonRollingOut = "RollingOut"
	// ReasonImagesAvailable: every image that is built or signed in the cluster is there.
	ReasonImagesAvailable = "ImagesAvailable"
	// ReasonBuilding: an image is being built or signed.
	ReasonBuilding = "Building"
	// ReasonKernelReady: every Module is ready for the kernel of a PreflightValidation.
	ReasonKernelReady = "KernelReady"
	// ReasonPreflightRunning: some Modules are still looked at for the kernel of a PreflightValidation.
	ReasonPreflightRunning = "PreflightRunning"
	// ReasonDevicesPending: the device plugin or DRA driver is not ready on some node with the module.
	ReasonDevicesPending = "DevicesPending"
)

// Reasons of attempts, conditions and events that need attention. The set is closed; each has a next step in
// docs/reference/reasons.md.
const (
	// ReasonNoKernelMapping: no kernel mapping matches the node's kernel, or its image cannot be named for that kernel.
	ReasonNoKernelMapping = "NoKernelMapping"
	// ReasonAwaitingDelivery: the image's content is on its way to the node.
	ReasonAwaitingDelivery = "AwaitingDelivery"
	// ReasonImageNotFound: the registry does not have the image.
	ReasonImageNotFound = "ImageNotFound"
	// ReasonPullUnauthorized: the registry refused the pull secrets.
	ReasonPullUnauthorized = "PullUnauthorized"
	// ReasonAgentImageUnauthorized: the registry refused the agent's own image to a carrier in the Module's namespace.
	ReasonAgentImageUnauthorized = "AgentImageUnauthorized"
	// ReasonPullFailed: the kubelet cannot pull the image for another cause.
	ReasonPullFailed = "PullFailed"
	// ReasonDeliveryRefused: the carrier pod was refused or cannot run.
	ReasonDeliveryRefused = "DeliveryRefused"
	// ReasonImageUnreadable: the image's content cannot be used.
	ReasonImageUnreadable = "ImageUnreadable"
	// ReasonImageTooLarge: the image's content exceeds the delivery limit.
	ReasonImageTooLarge = "ImageTooLarge"
	// ReasonVermagicMismatch: the module was built for another kernel configuration.
	ReasonVermagicMismatch = "VermagicMismatch"
	// ReasonUnknownSymbol: the kernel lacks a symbol or its CRC differs.
	ReasonUnknownSymbol = "UnknownSymbol"
	// ReasonDependencyConflict: another build of a module that this one depends on is live, and does not fit.
	ReasonDependencyConflict = "DependencyConflict"
	// ReasonMissingDependency: a module that this one depends on exists neither in the image nor on the host.
	ReasonMissingDependency = "MissingDependency"
	// ReasonAgentFailed: the agent's own means on the node failed, such as its state directory, or are not where it was told.
	ReasonAgentFailed = "AgentFailed"
	// ReasonQuarantined: the node went down while the build was being loaded.
	ReasonQuarantined = "Quarantined"
	// ReasonFirmwareConflict: a firmware file of that name with other content is on the node already.
	ReasonFirmwareConflict = "FirmwareConflict"
	// ReasonModuleConflict: another Module owns a different build of the same kernel module on the node.
	ReasonModuleConflict = "ModuleConflict"
	// ReasonSignatureRejected: the kernel refuses the module's signature.
	ReasonSignatureRejected = "SignatureRejected"
	// ReasonLockedDown: the kernel is in lockdown and loads only what is signed by a key that it trusts.
	ReasonLockedDown = "LockedDown"
	// ReasonLoadPin: the kernel loads modules only from one file system.
	ReasonLoadPin = "LoadPin"
	// ReasonMissingFirmware: the module asked for a firmware file that is not there, and gave up.
	ReasonMissingFirmware = "MissingFirmware"
	// ReasonModulesDisabled: kernel.modules_disabled is 1.
	ReasonModulesDisabled = "ModulesDisabled"
	// ReasonInvalidParameter: the kernel refuses a module parameter.
	ReasonInvalidParameter = "InvalidParameter"
	// ReasonNoSuchDevice: the module found no device to drive.
	ReasonNoSuchDevice = "NoSuchDevice"
	// ReasonNotUsable: the kernel module is live, and a check of readyWhen does not pass.
	ReasonNotUsable = "NotUsable"
	// ReasonAlreadyLoadedForeign: another build of the same module is live and not ours.
	ReasonAlreadyLoadedForeign = "AlreadyLoadedForeign"
	// ReasonInUse: somebody uses the module that shall go.
	ReasonInUse = "InUse"
	// ReasonDrifted: the module went away although it is wanted.
	ReasonDrifted = "Drifted"
	// ReasonRolledBack: the order was tried and failed, and the one before it serves again.
	ReasonRolledBack = "RolledBack"
	// ReasonRebootRequired: the kernel module changes with the node's next boot, as its unload policy asks.
	ReasonRebootRequired = "RebootRequired"
	// ReasonTimeout: a kernel call did not return in time.
	ReasonTimeout = "Timeout"
	// ReasonLoadFailed: the kernel refused the load with an error that has no reason of its own.
	ReasonLoadFailed = "LoadFailed"
	// ReasonUnloadFailed: the kernel refused the unload with an error other than "busy".
	ReasonUnloadFailed = "UnloadFailed"
	// ReasonAgentMissing: no agent answers on the node.
	ReasonAgentMissing = "AgentMissing"
	// ReasonNodeNotReady: the node is not Ready.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonWrongKernel: the order was resolved for another kernel than the one that runs.
	ReasonWrongKernel = "WrongKernel"
	// ReasonRecordForeign: the node's record is damaged, or belongs to another cluster or node.
	ReasonRecordForeign = "RecordForeign"
	// ReasonPeerActive: KMM's operator is at work, so Drover changes nothing.
	ReasonPeerActive = "PeerActive"
	// ReasonCRDIncompatible: the cluster's CustomResourceDefinitions are not ours, so Drover changes nothing.
	ReasonCRDIncompatible = "CRDIncompatible"
	// ReasonMixedContent: one image reference means different content on different nodes.
	ReasonMixedContent = "MixedContent"
	// ReasonAbandoned: the Module went while nodes still had it; the orders to unload stand there.
	ReasonAbandoned = "Abandoned"
	// ReasonUnclaimed: loaded by the agent, and no order names it.
	ReasonUnclaimed = "Unclaimed"
	// ReasonPaused: paused by annotation.
	ReasonPaused = "Paused"
	// ReasonPreflightFailed: some Modules are not ready for the kernel of a PreflightValidation.
	ReasonPreflightFailed = "PreflightFailed"
	// ReasonDeviceClassConflict: a DeviceClass of a wanted name exists and is not this Module's.
	ReasonDeviceClassConflict = "DeviceClassConflict"
	// ReasonRolloutPaused: no further node gets the change: a node failed with it, or somebody paused the rollout.
	ReasonRolloutPaused = "RolloutPaused"
	// ReasonDrainBlocked: spec.rollout.drain cannot empty a node: a cordon or an eviction is refused.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonMassDeselection: more nodes than may be unavailable are no longer selected, and keep the kernel module until that is confirmed.
	ReasonMassDeselection = "MassDeselection"
	// ReasonVersionLabel: the node's version label names another version of the Module, or none.
	ReasonVersionLabel = "VersionLabel"
	// ReasonModprobeUnsupported: args or rawArgs need kmod's modprobe, which the agent's image was built without.
	ReasonModprobeUnsupported = "ModprobeUnsupported"
	// ReasonBuildFailed: the build of an image failed.
	ReasonBuildFailed = "BuildFailed"
	// ReasonSignFailed: kernel modules of an image could not be signed.
	ReasonSignFailed = "SignFailed"
	// ReasonPushFailed: the registry did not take an image that was built or signed.
	ReasonPushFailed = "PushFailed"
	// ReasonCheckFailed: it could not be found out whether the registry has an image that is to be built or signed.
	ReasonCheckFailed = "CheckFailed"
	// ReasonBuildInputMissing: what an image is to be built from is not there, or does not say enough.
	ReasonBuildInputMissing = "BuildInputMissing"
	// ReasonImageConflict: an older image that is made in the cluster has the same name.
	ReasonImageConflict = "ImageConflict"
	// ReasonUnsupportedNode: the selector chooses only nodes on which no agent can run.
	ReasonUnsupportedNode = "UnsupportedNode"
	// ReasonUnsupported: the Module asks for something that this version does not do.
	ReasonUnsupported = "Unsupported"
)
