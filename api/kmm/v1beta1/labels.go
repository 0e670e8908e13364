// SPDX-License-Identifier: Apache-2.0

package v1beta1

const (
	// ModuleFinalizer keeps a Module until it is out of every kernel. Same name as upstream.
	ModuleFinalizer = "kmm.node.kubernetes.io/module-finalizer"

	// PluginPodFinalizer is KMM's on the pods of its device plugins and DRA drivers. Drover adds none,
	// and takes it off pods that are being deleted.
	PluginPodFinalizer = "kmm.node.kubernetes.io/node-labeler"

	// ModuleNameLabel is put on every object made for a Module.
	ModuleNameLabel = "kmm.node.kubernetes.io/module.name"

	// ModuleNamespaceLabel is put on what is made for a Module outside of its namespace.
	ModuleNamespaceLabel = "kmm.node.kubernetes.io/module.namespace"

	// RoleLabel tells what is made for a device plugin from what is made for a DRA driver.
	RoleLabel = "kmm.node.kubernetes.io/role"
	// RoleDevicePlugin is its value for a device plugin.
	RoleDevicePlugin = "device-plugin"
	// RoleDRA is its value for a DRA driver.
	RoleDRA = "dra"

	// CarrierLabel is on every carrier pod. Its value is empty.
	CarrierLabel = "drover.dev/carrier"

	// ModuleNamespaceAnnotation is the namespace of a carrier pod's Module.
	ModuleNamespaceAnnotation = "drover.dev/module-namespace"
	// ModuleNameAnnotation is the name of a carrier pod's Module.
	ModuleNameAnnotation = "drover.dev/module-name"
	// DeliveryAnnotation is the delivery id of a carrier pod.
	DeliveryAnnotation = "drover.dev/delivery"
	// PullsAsAnnotation on a carrier pod is a digest of its ServiceAccount and Secrets.
	PullsAsAnnotation = "drover.dev/pulls-as"

	// NoImageVolumesAnnotation on a NodeModulesConfig: a carrier with an image volume could not start
	// on the node in this boot. Remove it to have image volumes tried again.
	NoImageVolumesAnnotation = "drover.dev/no-image-volumes"

	// CarrierPrefix begins the name of every carrier pod, by which an admission policy seals it.
	CarrierPrefix = "drover-carrier-"

	// CordonedAnnotation on a Node: the Modules (namespace/name, separated by commas) for which Drover
	// has cordoned it.
	CordonedAnnotation = "drover.dev/cordoned-for"
	// PausedAnnotation on a Module or Node, whatever its value: report, and change nothing.
	PausedAnnotation = "drover.dev/paused"
	// RetryAnnotation on a Module or Node holds a time (RFC 3339): earlier failures are forgotten.
	RetryAnnotation = "drover.dev/retry"
	// SkipChecksAnnotation on a Module or Node lets the kernel decide instead of the agent's checks.
	SkipChecksAnnotation = "drover.dev/skip-checks"
	// ConfirmDeselectionAnnotation on a Module holds a time (RFC 3339): for an hour from then, more
	// nodes than maxUnavailable may lose the kernel module at once because of a deselection.
	ConfirmDeselectionAnnotation = "drover.dev/confirm-deselection"

	// NodeConditionKernelModules is a condition of Nodes: every kernel module that belongs there is
	// ready. Only an operator with --node-condition keeps it.
	NodeConditionKernelModules = "drover.dev/KernelModulesReady"

	labelPrefix     = "kmm.node.kubernetes.io/"
	betaLabelPrefix = "beta." + labelPrefix
)

// ConfiguredLabel is on a NodeModulesConfig with an order to load the Module. Same key as upstream.
func ConfiguredLabel(namespace, name string) string {
	return betaLabelPrefix + namespace + "." + name + ".module-configured"
}

// InUseLabel is on a NodeModulesConfig with any entry for the Module. Same key as upstream.
func InUseLabel(namespace, name string) string {
	return betaLabelPrefix + namespace + "." + name + ".module-in-use"
}

// ReadyLabel is on a node where the kernel module is live, verified in this boot. Upstream's key.
func ReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".ready"
}

// DevicePluginReadyLabel is on a node where this Module's device plugin pod is ready.
func DevicePluginReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".device-plugin-ready"
}

// DevicePluginTargetSuffix ends the node labels by which KMM's device plugins choose nodes. Drover
// puts none on nodes, and takes off what KMM has left.
const DevicePluginTargetSuffix = ".device-plugin-target"

// DevicePluginTargetLabel is the node label by which KMM's device plugin of a Module chooses nodes.
func DevicePluginTargetLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + DevicePluginTargetSuffix
}

// DRAReadyLabel is on a node where this Module's DRA driver pod is ready.
func DRAReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".dra-ready"
}

// VersionReadyLabel is the node label whose value is the Module version that is live on the node.
func VersionReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".version.ready"
}

// BakedPrefix begins the node labels by which a kubelet says what its node's image holds.
const BakedPrefix = "baked.drover.dev/"

// BakedLabel is on a node whose image was made with a delivery: its agent is asked for it before a
// carrier is made. Whatever its value.
func BakedLabel(delivery string) string { return BakedPrefix + delivery }

// VersionModulePrefix begins the node labels by which users drive ordered upgrades.
const VersionModulePrefix = labelPrefix + "version-module."

// VersionWorkerPrefix and VersionSchedulePrefix begin the node labels that answer them.
const (
	VersionWorkerPrefix   = betaLabelPrefix + "version-worker-pod."
	VersionSchedulePrefix = betaLabelPrefix + "version-schedule-pod."
)

// VersionWorkerLabel on a node is the Module version that the node's order may have.
func VersionWorkerLabel(namespace, name string) string {
	return VersionWorkerPrefix + namespace + "." + name
}

// VersionScheduleLabel on a node is the Module version whose device plugin may run there.
func VersionScheduleLabel(namespace, name string) string {
	return VersionSchedulePrefix + namespace + "." + name
}
