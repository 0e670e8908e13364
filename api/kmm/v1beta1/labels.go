// SPDX-License-Identifier: Apache-2.0

package v1beta1

const (
	// ModuleFinalizer keeps a Module until it is out of every kernel. Same name as upstream.
	ModuleFinalizer = "kmm.node.kubernetes.io/module-finalizer"

	// ModuleNameLabel is put on every object made for a Module.
	ModuleNameLabel = "kmm.node.kubernetes.io/module.name"

	// ModuleNamespaceLabel is put, beside ModuleNameLabel, on what is made for a Module outside of its namespace.
	ModuleNamespaceLabel = "kmm.node.kubernetes.io/module.namespace"

	// RoleLabel tells a device plugin DaemonSet ("device-plugin") from a DRA one ("dra").
	RoleLabel = "kmm.node.kubernetes.io/role"

	// CarrierLabel is on every carrier pod. Its value is empty.
	CarrierLabel = "drover.dev/carrier"

	// ModuleNamespaceAnnotation and the following name, on a carrier pod, what it delivers.
	ModuleNamespaceAnnotation = "drover.dev/module-namespace"
	// ModuleNameAnnotation names the Module of a carrier pod.
	ModuleNameAnnotation = "drover.dev/module-name"
	// DeliveryAnnotation is the delivery id of a carrier pod.
	DeliveryAnnotation = "drover.dev/delivery"
	// PullsAsAnnotation on a carrier pod is a digest of what it pulls with: the ServiceAccount and the Secrets.
	PullsAsAnnotation = "drover.dev/pulls-as"

	// NoImageVolumesAnnotation on a NodeModulesConfig: a carrier with an image volume could not start on the node with this software and in this
	// boot. Written with the orders; whoever takes it off has image volumes tried again.
	NoImageVolumesAnnotation = "drover.dev/no-image-volumes"

	// CarrierPrefix begins the name of every carrier pod. An admission policy seals all pods whose names begin so.
	CarrierPrefix = "drover-carrier-"

	// CordonedAnnotation on a Node: the Modules (namespace/name, separated by commas) for whose change Drover has cordoned it, and for whose it
	// takes the cordon back.
	CordonedAnnotation = "drover.dev/cordoned-for"
	// PausedAnnotation on a Module or Node: watched and reported, not touched. Its value does not matter.
	PausedAnnotation = "drover.dev/paused"
	// RetryAnnotation on a Module or Node holds a time (RFC 3339): failures from before it are forgotten, and a quarantine ends.
	RetryAnnotation = "drover.dev/retry"
	// SkipChecksAnnotation on a Module or Node: what the agent thinks hopeless is tried all the same. Its value does not matter.
	SkipChecksAnnotation = "drover.dev/skip-checks"
	// ConfirmDeselectionAnnotation on a Module holds a time (RFC 3339): for an hour from then, more nodes than maxUnavailable may lose the
	// kernel module at once because they are no longer selected.
	ConfirmDeselectionAnnotation = "drover.dev/confirm-deselection"

	labelPrefix     = "kmm.node.kubernetes.io/"
	betaLabelPrefix = "beta." + labelPrefix
)

// ConfiguredLabel is on a NodeModulesConfig while the node is ordered to hold the Module. Same key as upstream; its value is empty.
func ConfiguredLabel(namespace, name string) string {
	return betaLabelPrefix + namespace + "." + name + ".module-configured"
}

// InUseLabel is on a NodeModulesConfig while the Module has an entry there, an order to unload too. Same key as upstream; its
// value is empty.
func InUseLabel(namespace, name string) string {
	return betaLabelPrefix + namespace + "." + name + ".module-in-use"
}

// ReadyLabel is the node label that says: this Module's kernel module is live and verified on the node in this boot.
// Same key as upstream; its value is empty.
func ReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".ready"
}

// DevicePluginReadyLabel is the node label that says: this Module's device plugin pod is ready on the node.
func DevicePluginReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".device-plugin-ready"
}

// DRAReadyLabel is the node label that says: this Module's DRA driver pod is ready on the node.
func DRAReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".dra-ready"
}

// VersionReadyLabel is the node label whose value is the Module version that is live on the node.
func VersionReadyLabel(namespace, name string) string {
	return labelPrefix + namespace + "." + name + ".version.ready"
}

// VersionModulePrefix begins the node labels by which users drive ordered upgrades; the Module's namespace and name follow.
const VersionModulePrefix = labelPrefix + "version-module."

// VersionWorkerPrefix and VersionSchedulePrefix begin the node labels that answer them.
const (
	VersionWorkerPrefix   = betaLabelPrefix + "version-worker-pod."
	VersionSchedulePrefix = betaLabelPrefix + "version-schedule-pod."
)

// VersionWorkerLabel is the node label whose value is the version of the Module that the node's order may have.
func VersionWorkerLabel(namespace, name string) string {
	return VersionWorkerPrefix + namespace + "." + name
}

// VersionScheduleLabel is the node label whose value is the version of the Module whose device plugin may run on the node.
func VersionScheduleLabel(namespace, name string) string {
	return VersionSchedulePrefix + namespace + "." + name
}

// DeprecatedReadyLabel is the old ready label without a namespace; it is removed where it is found.
func DeprecatedReadyLabel(name string) string {
	return labelPrefix + name + ".ready"
}
