// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Condition types of a Module. All have positive polarity but ConditionStalled; none is transient.
const (
	// ConditionReady is True when every selected node has everything that this Module asks for.
	ConditionReady = "Ready"
	// ConditionKernelsCovered is True when every selected node's kernel has a mapping.
	ConditionKernelsCovered = "KernelsCovered"
	// ConditionImagesAvailable is True when every image to build or sign for selected nodes exists.
	ConditionImagesAvailable = "ImagesAvailable"
	// ConditionLoaded is True when the kernel module is live on every desired node.
	ConditionLoaded = "Loaded"
	// ConditionDevicesReady is True when the plugin is ready on every node with the module.
	ConditionDevicesReady = "DevicesReady"
	// ConditionStalled is True when nothing that is missing will come by itself, as in kstatus. It is
	// absent otherwise.
	ConditionStalled = "Stalled"
)

// Reasons of conditions that stand for "all is well" or "on its way".
// docs/reference/reasons.md says what each means, and what to do.
const (
	ReasonReady             = "Ready"
	ReasonAllKernelsCovered = "AllKernelsCovered"
	ReasonLoaded            = "Loaded"
	ReasonLoading           = "Loading"
	ReasonUnloading         = "Unloading"
	ReasonNoNodes           = "NoNodes"
	ReasonNotRequested      = "NotRequested"
	ReasonDevicesReady      = "DevicesReady"
	ReasonRollingOut        = "RollingOut"
	ReasonImagesAvailable   = "ImagesAvailable"
	ReasonBuilding          = "Building"
	ReasonKernelReady       = "KernelReady"
	ReasonPreflightRunning  = "PreflightRunning"
	ReasonDevicesPending    = "DevicesPending"
)

// Reasons of attempts, conditions and events that need attention. The set is closed.
const (
	ReasonNoKernelMapping        = "NoKernelMapping"
	ReasonInvalidKernelVersion   = "InvalidKernelVersion"
	ReasonAwaitingDelivery       = "AwaitingDelivery"
	ReasonImageNotFound          = "ImageNotFound"
	ReasonPullUnauthorized       = "PullUnauthorized"
	ReasonAgentImageUnauthorized = "AgentImageUnauthorized"
	ReasonPullFailed             = "PullFailed"
	ReasonDeliveryRefused        = "DeliveryRefused"
	ReasonImageUnreadable        = "ImageUnreadable"
	ReasonImageTooLarge          = "ImageTooLarge"
	ReasonVermagicMismatch       = "VermagicMismatch"
	ReasonUnknownSymbol          = "UnknownSymbol"
	ReasonDependencyConflict     = "DependencyConflict"
	ReasonMissingDependency      = "MissingDependency"
	ReasonAgentFailed            = "AgentFailed"
	ReasonQuarantined            = "Quarantined"
	ReasonFirmwareConflict       = "FirmwareConflict"
	ReasonModuleConflict         = "ModuleConflict"
	ReasonSignatureRejected      = "SignatureRejected"
	ReasonLockedDown             = "LockedDown"
	ReasonLoadPin                = "LoadPin"
	ReasonSELinux                = "SELinux"
	ReasonMissingFirmware        = "MissingFirmware"
	ReasonModulesDisabled        = "ModulesDisabled"
	ReasonInvalidParameter       = "InvalidParameter"
	ReasonNoSuchDevice           = "NoSuchDevice"
	ReasonNotUsable              = "NotUsable"
	ReasonAlreadyLoadedForeign   = "AlreadyLoadedForeign"
	ReasonInUse                  = "InUse"
	ReasonDrifted                = "Drifted"
	ReasonParametersDiffer       = "ParametersDiffer"
	ReasonDependencyKept         = "DependencyKept"
	ReasonRolledBack             = "RolledBack"
	ReasonRebootRequired         = "RebootRequired"
	ReasonTimeout                = "Timeout"
	ReasonLoadFailed             = "LoadFailed"
	ReasonUnloadFailed           = "UnloadFailed"
	ReasonAgentMissing           = "AgentMissing"
	ReasonNodeNotReady           = "NodeNotReady"
	ReasonWrongKernel            = "WrongKernel"
	ReasonRecordForeign          = "RecordForeign"
	ReasonPeerActive             = "PeerActive"
	ReasonCRDIncompatible        = "CRDIncompatible"
	ReasonWriteRefused           = "WriteRefused"
	ReasonMixedContent           = "MixedContent"
	ReasonAbandoned              = "Abandoned"
	ReasonUnclaimed              = "Unclaimed"
	ReasonPaused                 = "Paused"
	ReasonPreflightFailed        = "PreflightFailed"
	ReasonDeviceClassConflict    = "DeviceClassConflict"
	ReasonRolloutPaused          = "RolloutPaused"
	ReasonDrainBlocked           = "DrainBlocked"
	ReasonMassDeselection        = "MassDeselection"
	ReasonVersionLabel           = "VersionLabel"
	ReasonTainted                = "Tainted"
	ReasonModprobeUnsupported    = "ModprobeUnsupported"
	ReasonBuildFailed            = "BuildFailed"
	ReasonSignFailed             = "SignFailed"
	ReasonPushFailed             = "PushFailed"
	ReasonCheckFailed            = "CheckFailed"
	ReasonBuildInputMissing      = "BuildInputMissing"
	ReasonImageConflict          = "ImageConflict"
	ReasonPolicyDenied           = "PolicyDenied"
	ReasonStartupTaintDenied     = "StartupTaintDenied"
	ReasonUnsupportedNode        = "UnsupportedNode"
	ReasonUnsupported            = "Unsupported"
)
