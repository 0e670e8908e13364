// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Module says which out-of-tree kernel module belongs on which nodes, and which plugin follows it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=kmod
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.moduleLoader.desiredNumber`,description="Nodes that should hold the kernel module"
// +kubebuilder:printcolumn:name="Loaded",type=integer,JSONPath=`.status.moduleLoader.availableNumber`,description="Nodes on which the kernel module is live"
// +kubebuilder:printcolumn:name="Plugin",type=integer,JSONPath=`.status.devicePlugin.availableNumber`,description="Nodes on which the device plugin is ready"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Module struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ModuleSpec   `json:"spec,omitempty"`
	Status ModuleStatus `json:"status,omitempty"`
}

// ModuleList is a list of Modules.
//
// +kubebuilder:object:root=true
type ModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Module `json:"items"`
}

// ModuleSpec is the user's wish.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.dra) && has(self.devicePlugin))",message="spec.dra and spec.devicePlugin are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="has(self.devicePlugin) || has(self.dra) || !has(self.moduleLoader) || !has(self.moduleLoader.container.readyWhen) || !self.moduleLoader.container.readyWhen.exists(c, has(c.command))",message="a command in moduleLoader.container.readyWhen runs in the pod of devicePlugin or dra: set one of them"
type ModuleSpec struct {
	// devicePlugin is started on the nodes where the kernel module is ready.
	DevicePlugin *DevicePluginSpec `json:"devicePlugin,omitempty"`

	// dra is the DRA driver started on the nodes where the kernel module is ready.
	DRA *DRASpec `json:"dra,omitempty"`

	// moduleLoader says what to load. Unset: nothing; the plugin runs on all selected nodes.
	ModuleLoader *ModuleLoaderSpec `json:"moduleLoader,omitempty"`

	// imageRepoSecret names the Secret used to pull (and, for builds, push) the kernel module image.
	ImageRepoSecret *corev1.LocalObjectReference `json:"imageRepoSecret,omitempty"`

	// imageRepoSecrets are further Secrets used to pull images and base images.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ImageRepoSecrets []corev1.LocalObjectReference `json:"imageRepoSecrets,omitempty"`

	// imageRebuildTriggerGeneration, when changed, has every image verified and delivered again.
	ImageRebuildTriggerGeneration *int `json:"imageRebuildTriggerGeneration,omitempty"`

	// rollout says how changes reach the nodes.
	Rollout *RolloutSpec `json:"rollout,omitempty"`

	// deletionTimeout is how long a deleted Module waits for nodes that do not answer or where the
	// kernel module is in use. After that it goes, an event names these nodes, and their orders to
	// unload stay. It does not wait for dead nodes. Default 10m; 0s: it goes once the orders stand.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	DeletionTimeout *metav1.Duration `json:"deletionTimeout,omitempty"`

	// selector chooses nodes by label; all labels must match. {} chooses every Linux node.
	Selector map[string]string `json:"selector"`

	// startupTaint is the key of a taint that nodes are registered with, to keep pods off. Drover
	// removes it from a node once every Module there that names it is ready, plugins included, and
	// never adds it. A Module may name keys of its namespace, <namespace>.startup.drover.dev/<name>,
	// and those that the operator's --startup-taints lists.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^(([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') || self.startsWith('startup-taint.cluster-autoscaler.kubernetes.io/')",message="startupTaint must not be a taint of Kubernetes itself"
	StartupTaint string `json:"startupTaint,omitempty"`

	// tolerations apply to node targeting for the first load and to all pods made for this Module.
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// DefaultDeletionTimeout is spec.deletionTimeout where it is not set.
const DefaultDeletionTimeout = 10 * time.Minute

// ModuleLoaderSpec describes the kernel module.
type ModuleLoaderSpec struct {
	// container holds the image, the mapping from kernels to images and the modprobe settings.
	Container ModuleLoaderContainerSpec `json:"container"`

	// serviceAccountName is the ServiceAccount whose pull secrets carriers use. Default: "default".
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ModuleLoaderContainerSpec describes the kernel module image.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.inTreeModulesToRemove) && size(self.inTreeModulesToRemove) > 0 && has(self.inTreeModuleToRemove) && size(self.inTreeModuleToRemove) > 0)",message="inTreeModulesToRemove and inTreeModuleToRemove are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!(has(self.inTreeModulesToRemove) && size(self.inTreeModulesToRemove) > 0) || self.kernelMappings.all(m, !has(m.inTreeModuleToRemove) || size(m.inTreeModuleToRemove) == 0)",message="inTreeModulesToRemove and a mapping's inTreeModuleToRemove cannot be mixed"
// +kubebuilder:validation:XValidation:rule="!(has(self.inTreeModuleToRemove) && size(self.inTreeModuleToRemove) > 0) || self.kernelMappings.all(m, !has(m.inTreeModulesToRemove) || size(m.inTreeModulesToRemove) == 0)",message="inTreeModuleToRemove and a mapping's inTreeModulesToRemove cannot be mixed"
// +kubebuilder:validation:XValidation:rule="(has(self.containerImage) && size(self.containerImage) > 0) || self.kernelMappings.all(m, has(m.containerImage) && size(m.containerImage) > 0)",message="every kernel mapping needs a containerImage when container.containerImage is not set"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.version) && size(oldSelf.version) > 0) == (has(self.version) && size(self.version) > 0)",message="version cannot be set or unset on an existing Module, only changed"
type ModuleLoaderContainerSpec struct {
	// build are the default build settings of all kernel mappings.
	Build *Build `json:"build,omitempty"`

	// sign are the default signing settings of all kernel mappings.
	Sign *Sign `json:"sign,omitempty"`

	// containerImage is the default image of all kernel mappings. Template variables are substituted.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':')",message="containerImage must name a tag or a digest"
	ContainerImage string `json:"containerImage,omitempty"`

	// imagePullPolicy of the image. Always delivers it again when moduleLoader or the trigger changes.
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// kernelMappings relate kernels to images; the first one that matches a node's kernel wins.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	KernelMappings []KernelMapping `json:"kernelMappings"`

	// modprobe says which module of the image is loaded and how.
	// +kubebuilder:validation:XValidation:rule="(has(self.moduleName) && self.moduleName != '') || (has(self.rawArgs) && has(self.rawArgs.load) && size(self.rawArgs.load) > 0 && has(self.rawArgs.unload) && size(self.rawArgs.unload) > 0)",message="moduleName, or rawArgs with both load and unload, must be set"
	// +kubebuilder:validation:XValidation:rule="!(has(self.moduleName) && self.moduleName != '' && has(self.rawArgs) && ((has(self.rawArgs.load) && size(self.rawArgs.load) > 0) || (has(self.rawArgs.unload) && size(self.rawArgs.unload) > 0)))",message="rawArgs and moduleName are mutually exclusive"
	// +kubebuilder:validation:XValidation:rule="!has(self.modulesLoadingOrder) || size(self.modulesLoadingOrder) == 0 || (size(self.modulesLoadingOrder) >= 2 && has(self.moduleName) && self.modulesLoadingOrder[0] == self.moduleName)",message="modulesLoadingOrder needs at least two entries, the first being moduleName"
	// +kubebuilder:validation:XValidation:rule="!has(self.modulesLoadingOrder) || self.modulesLoadingOrder.all(x, self.modulesLoadingOrder.exists_one(y, x == y))",message="modulesLoadingOrder must not repeat a module"
	// +kubebuilder:validation:XValidation:rule="!has(self.firmwarePath) || !self.firmwarePath.split('/').exists(p, p == '..')",message="firmwarePath must not contain '..'"
	// +kubebuilder:validation:XValidation:rule="!has(self.modprobedDir) || self.modprobedDir == '' || (self.modprobedDir.startsWith('/') && !self.modprobedDir.split('/').exists(p, p == '..'))",message="modprobedDir must be an absolute path without '..'"
	Modprobe ModprobeSpec `json:"modprobe"`

	// inTreeModulesToRemove are unloaded before this module is loaded.
	// +kubebuilder:validation:MaxItems=64
	InTreeModulesToRemove []string `json:"inTreeModulesToRemove,omitempty"`

	// inTreeModuleToRemove is the deprecated single form of inTreeModulesToRemove.
	// +kubebuilder:validation:MaxLength=256
	InTreeModuleToRemove string `json:"inTreeModuleToRemove,omitempty"`

	// blacklistInTree keeps the host (udev) from loading inTreeModulesToRemove at boot, by a file in
	// /etc/modprobe.d that goes when the Module leaves the node.
	BlacklistInTree bool `json:"blacklistInTree,omitempty"`

	// unloadPolicy says when the kernel module may be unloaded. Wait (default): as soon as nobody
	// uses it. OnReboot: never; it leaves, or another build replaces it, at the node's next boot.
	UnloadPolicy UnloadPolicy `json:"unloadPolicy,omitempty"`

	// readyWhen are checks that must pass before a live kernel module counts as ready on a node.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, (has(c.deviceNode) ? 1 : 0) + (has(c.sysfs) ? 1 : 0) + (has(c.command) ? 1 : 0) == 1)",message="each check must set exactly one of deviceNode, sysfs and command"
	// +kubebuilder:validation:XValidation:rule="self.filter(c, has(c.command)).size() <= 1",message="readyWhen may have one command"
	ReadyWhen []ReadyCheck `json:"readyWhen,omitempty"`

	// registryTLS are the TLS settings of the registry that holds containerImage.
	RegistryTLS TLSOptions `json:"registryTLS,omitempty"`

	// version turns on the ordered upgrade, driven by a node label with this value.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	Version string `json:"version,omitempty"`
}

// KernelMapping relates kernels to an image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.regexp) && size(self.regexp) > 0) != (has(self.literal) && size(self.literal) > 0)",message="exactly one of regexp and literal must be set: they are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!(has(self.inTreeModulesToRemove) && size(self.inTreeModulesToRemove) > 0 && has(self.inTreeModuleToRemove) && size(self.inTreeModuleToRemove) > 0)",message="inTreeModulesToRemove and inTreeModuleToRemove are mutually exclusive"
type KernelMapping struct {
	// build settings merged over the container's; build: {} means "as the container says".
	Build *Build `json:"build,omitempty"`

	// sign settings merged over the container's.
	Sign *Sign `json:"sign,omitempty"`

	// containerImage of this mapping; empty: the container's. Template variables are substituted.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':')",message="containerImage must name a tag or a digest"
	ContainerImage string `json:"containerImage,omitempty"`

	// literal is compared with the node's kernel version.
	// +kubebuilder:validation:MaxLength=256
	Literal string `json:"literal,omitempty"`

	// regexp (RE2, not anchored) is matched against the node's kernel version.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) ? true : true",message="regexp must be a valid RE2 regular expression"
	Regexp string `json:"regexp,omitempty"`

	// architecture of the nodes that the mapping is for, such as arm64; empty: of all. Drover's own.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{0,16}$`
	Architecture string `json:"architecture,omitempty"`

	// registryTLS overrides the container's.
	RegistryTLS *TLSOptions `json:"registryTLS,omitempty"`

	// inTreeModulesToRemove overrides the container's.
	// +kubebuilder:validation:MaxItems=64
	InTreeModulesToRemove []string `json:"inTreeModulesToRemove,omitempty"`

	// inTreeModuleToRemove is the deprecated single form of inTreeModulesToRemove.
	// +kubebuilder:validation:MaxLength=256
	InTreeModuleToRemove string `json:"inTreeModuleToRemove,omitempty"`
}

// ModprobeSpec says what to load and with which arguments. Its rules apply to Module.spec only.
type ModprobeSpec struct {
	// moduleName is the kernel module to load. Unset only with rawArgs.
	// +kubebuilder:validation:MaxLength=256
	ModuleName string `json:"moduleName,omitempty"`

	// parameters are passed to the kernel module, each as key=value.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=1024
	Parameters []string `json:"parameters,omitempty"`

	// dirName is the directory in the image below which lib/modules/<kernel> lies.
	// +kubebuilder:default=/opt
	// +kubebuilder:validation:MaxLength=512
	DirName string `json:"dirName,omitempty"`

	// args are passed to modprobe before the module's name. They select the modprobe program.
	Args *ModprobeArgs `json:"args,omitempty"`

	// rawArgs are passed to modprobe verbatim; everything else here is then ignored.
	RawArgs *ModprobeArgs `json:"rawArgs,omitempty"`

	// firmwarePath is the directory of firmware in the image, relative to the image's root.
	// +kubebuilder:validation:MaxLength=512
	FirmwarePath string `json:"firmwarePath,omitempty"`

	// modprobedDir is the directory in the image with files for /etc/modprobe.d, an absolute path.
	// Drover does not support it: nodes answer Unsupported and load nothing.
	// +kubebuilder:validation:MaxLength=512
	ModprobedDir string `json:"modprobedDir,omitempty"`

	// modulesLoadingOrder lists modules, topmost first, whose files do not name their dependencies.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	ModulesLoadingOrder []string `json:"modulesLoadingOrder,omitempty"`
}

// ModprobeArgs are modprobe arguments for loading and unloading.
type ModprobeArgs struct {
	// load are the arguments used when loading.
	// +kubebuilder:validation:MaxItems=64
	Load []string `json:"load,omitempty"`

	// unload are the arguments used when unloading.
	// +kubebuilder:validation:MaxItems=64
	Unload []string `json:"unload,omitempty"`
}

// ModuleStatus is what was observed.
type ModuleStatus struct {
	// observedGeneration is the Module generation that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, KernelsCovered, ImagesAvailable, Loaded, DevicesReady and Stalled.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// problems are what controllers of the operator were refused, or refuse, and what no other object
	// shows. Each controller writes those of its part. The conditions are made of them, among other
	// things: read those.
	// +listType=map
	// +listMapKey=part
	// +listMapKey=node
	Problems []ModuleProblem `json:"problems,omitempty"`

	// devicePlugin counts nodes of the device plugin.
	DevicePlugin DaemonSetStatus `json:"devicePlugin,omitempty"`

	// dra counts nodes of the DRA driver.
	DRA DaemonSetStatus `json:"dra,omitempty"`

	// moduleLoader counts nodes of the kernel module.
	ModuleLoader DaemonSetStatus `json:"moduleLoader,omitempty"`

	// imageRebuildTriggerGeneration is the value last acted upon.
	ImageRebuildTriggerGeneration *int `json:"imageRebuildTriggerGeneration,omitempty"`
}

// ModuleProblem is what keeps one part of a Module from one node, or from all.
type ModuleProblem struct {
	// part of the Module that is kept back.
	Part ProblemPart `json:"part"`

	// node is the name of the node. Empty: every node. "*": nodes that are not named here, because
	// there are too many.
	Node string `json:"node"`

	// reason of the closed set of docs/reference/reasons.md.
	Reason string `json:"reason"`

	// message for people: the words of whoever refused, where somebody did.
	Message string `json:"message,omitempty"`
}

// ProblemPart is a part of a Module that one controller sees to.
//
// +kubebuilder:validation:Enum=Deliveries;Plugin;Images;StartupTaint
type ProblemPart string

const (
	// ProblemDeliveries is the way of the image to nodes, and of orders.
	ProblemDeliveries ProblemPart = "Deliveries"
	// ProblemPlugin is the objects of the device plugin or DRA driver.
	ProblemPlugin ProblemPart = "Plugin"
	// ProblemImages is the images that are built or signed in the cluster.
	ProblemImages ProblemPart = "Images"
	// ProblemStartupTaint is the taint that the Module wants removed from nodes.
	ProblemStartupTaint ProblemPart = "StartupTaint"
)

const (
	// AllNodes is [ModuleProblem].Node of what concerns every node.
	AllNodes = ""
	// OtherNodes is [ModuleProblem].Node of nodes that are not named, because there are too many.
	OtherNodes = "*"
)

// DaemonSetStatus counts nodes.
type DaemonSetStatus struct {
	// nodesMatchingSelectorNumber is the number of eligible nodes that the selector chooses.
	NodesMatchingSelectorNumber int32 `json:"nodesMatchingSelectorNumber,omitempty"`

	// desiredNumber is the number of nodes that should have it.
	DesiredNumber int32 `json:"desiredNumber,omitempty"`

	// availableNumber is the number of nodes that have it.
	AvailableNumber int32 `json:"availableNumber,omitempty"`
}

// ReadyCheck shows that the device of a kernel module can be used. Exactly one field is set.
type ReadyCheck struct {
	// deviceNode is a path below /dev that must be a device on the node, such as /dev/example0.
	// *, ? and [] stand for parts of one name; one match is enough.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/dev(/[^\s/.][^\s/]*)+$`
	DeviceNode string `json:"deviceNode,omitempty"`

	// sysfs is a file below /sys on the node.
	Sysfs *SysfsCheck `json:"sysfs,omitempty"`

	// command is the readiness probe of the device plugin or DRA driver: it ends with 0 when the
	// device can be used. It says nothing about the kernel module, which is ready before the pod.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	Command []string `json:"command,omitempty"`
}

// SysfsCheck is a file in sysfs.
type SysfsCheck struct {
	// path below /sys/block, /sys/bus, /sys/class, /sys/devices or /sys/module. *, ? and [] stand
	// for parts of one name; one match is enough.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/sys/(block|bus|class|devices|module)(/[^\s/.][^\s/]*)+$`
	Path string `json:"path"`

	// value that the file must hold, apart from blanks around it. Empty: the path must exist.
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value,omitempty"`
}
