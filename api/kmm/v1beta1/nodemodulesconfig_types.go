// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeModulesConfig says which kernel modules its node should hold, and what its kernel holds.
// The operator writes spec, one field owner per Module; the node's agent writes status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nmc
// +kubebuilder:printcolumn:name="Wanted",type=string,JSONPath=`.spec.modules[*].name`
// +kubebuilder:printcolumn:name="Live",type=string,JSONPath=`.status.modules[*].name`
// +kubebuilder:printcolumn:name="Open",type=string,JSONPath=`.status.attempts[*].state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.attempts[*].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeModulesConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeModulesConfigSpec   `json:"spec,omitempty"`
	Status NodeModulesConfigStatus `json:"status,omitempty"`
}

// NodeModulesConfigList is a list of NodeModulesConfigs.
//
// +kubebuilder:object:root=true
type NodeModulesConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeModulesConfig `json:"items"`
}

// NodeModulesConfigSpec is what the node should hold.
type NodeModulesConfigSpec struct {
	// modules are the orders for this node. state: Absent orders an unload, never a missing entry.
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	Modules []NodeModuleSpec `json:"modules,omitempty"`
}

// NodeModuleState says whether a kernel module should be in the kernel.
//
// +kubebuilder:validation:Enum="";Present;Draining;Absent
type NodeModuleState string

const (
	// NodeModulePresent (or empty, as upstream writes it) orders a load.
	NodeModulePresent NodeModuleState = "Present"
	// NodeModuleDraining means Present until the DRA driver has left: the ready label goes, the
	// kernel module stays, and the order to unload follows.
	NodeModuleDraining NodeModuleState = "Draining"
	// NodeModuleAbsent orders an unload.
	NodeModuleAbsent NodeModuleState = "Absent"
)

// ModuleItem identifies a Module and what is needed to fetch its image.
type ModuleItem struct {
	// name of the Module.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the Module.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// serviceAccountName whose pull secrets were used for the delivery.
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName"`
	// imageRepoSecret used for the delivery.
	ImageRepoSecret *corev1.LocalObjectReference `json:"imageRepoSecret,omitempty"`
	// tolerations of the Module.
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// version of the Module, for the ordered upgrade.
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
}

// NodeModuleSpec is one order.
type NodeModuleSpec struct {
	ModuleItem `json:",inline"`

	// config is what to load.
	Config ModuleConfig `json:"config"`

	// state is Present (default), Draining or Absent.
	State NodeModuleState `json:"state,omitempty"`

	// reason why state is Draining or Absent, in CamelCase.
	Reason string `json:"reason,omitempty"`

	// delivery says how the image reaches this node. Unset: not Drover's entry; the agent waits.
	Delivery *Delivery `json:"delivery,omitempty"`

	// next is a delivery that the node takes before the order that needs it.
	Next *Delivery `json:"next,omitempty"`

	// unloadPolicy says when the kernel module may be unloaded.
	UnloadPolicy UnloadPolicy `json:"unloadPolicy,omitempty"`

	// blacklistInTree keeps the host from loading config.inTreeModulesToRemove at boot.
	BlacklistInTree bool `json:"blacklistInTree,omitempty"`

	// readyWhen are the Module's checks that this node's agent makes.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ReadyWhen []ReadyCheck `json:"readyWhen,omitempty"`

	// skipChecks lets the kernel decide where the agent is certain that it will refuse.
	SkipChecks bool `json:"skipChecks,omitempty"`

	// paused orders to watch and report, and to touch nothing.
	Paused bool `json:"paused,omitempty"`

	// retry is when somebody last asked to forget earlier failures and to try again at once.
	Retry *metav1.Time `json:"retry,omitempty"`

	// excused is until when strikes are taken back, because their cause came from outside.
	Excused *metav1.Time `json:"excused,omitempty"`
}

// UnloadPolicy says when a kernel module may be unloaded.
//
// +kubebuilder:validation:Enum="";Wait;OnReboot
type UnloadPolicy string

const (
	// UnloadWait (or empty) unloads as soon as nobody uses the module.
	UnloadWait UnloadPolicy = "Wait"
	// UnloadOnReboot never unloads: the module leaves, or is replaced, at the node's next boot.
	UnloadOnReboot UnloadPolicy = "OnReboot"
)

// Delivery is one delivery of an image's content to a node.
type Delivery struct {
	// id identifies the content: image reference, rebuild trigger and what is taken from the image.
	// A node that reports this id in status.artifacts needs no carrier.
	ID string `json:"id"`

	// carrierUID is the UID of the carrier pod whose output the agent may import.
	// Empty: the node held the artifact already when the entry was written.
	CarrierUID types.UID `json:"carrierUID,omitempty"`
}

// ModuleConfig is what to load, resolved for this node's kernel.
type ModuleConfig struct {
	// kernelVersion is the node's kernel for which the rest was resolved.
	// +kubebuilder:validation:MaxLength=256
	KernelVersion string `json:"kernelVersion"`
	// containerImage is the image after substitution of variables.
	// +kubebuilder:validation:MaxLength=4096
	ContainerImage string `json:"containerImage"`
	// imagePullPolicy of the image.
	// +optional
	// +kubebuilder:default=IfNotPresent
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy"`
	// insecurePull is kept for compatibility; the kubelet pulls.
	InsecurePull bool `json:"insecurePull"`
	// inTreeModulesToRemove are unloaded first.
	// +listType=atomic
	InTreeModulesToRemove []string `json:"inTreeModulesToRemove,omitempty"`
	// inTreeModuleToRemove is the deprecated single form.
	InTreeModuleToRemove string `json:"inTreeModuleToRemove,omitempty"`
	// modprobe settings.
	Modprobe ModprobeSpec `json:"modprobe"`
}

// NodeModulesConfigStatus is what the node's agent saw.
type NodeModulesConfigStatus struct {
	// modules has an entry exactly while that build is live in the kernel.
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=512
	Modules []NodeModuleStatus `json:"modules,omitempty"`

	// attempts has an entry for every order that is not fulfilled, for every acknowledged unload,
	// and for what is loaded without an order.
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Attempts []NodeModuleAttempt `json:"attempts,omitempty"`

	// artifacts are the deliveries that this node holds on disk.
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=2048
	Artifacts []NodeArtifact `json:"artifacts,omitempty"`
}

// NodeModuleStatus describes a kernel module that is live.
type NodeModuleStatus struct {
	ModuleItem `json:",inline"`

	// config that was loaded.
	Config *ModuleConfig `json:"config,omitempty"`

	// bootId of the boot in which it was loaded or adopted.
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootId,omitempty"`

	// lastTransitionTime is when it became live.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// observed is what the kernel says about it.
	Observed *ObservedModule `json:"observed,omitempty"`
}

// ObservedModule are facts read from /sys/module and /proc/modules.
type ObservedModule struct {
	// delivery that brought what is live: its id in spec.modules[].delivery.
	// +kubebuilder:validation:MaxLength=128
	Delivery string `json:"delivery,omitempty"`
	// buildID is the GNU build ID (hex) of the live module.
	// +kubebuilder:validation:MaxLength=128
	BuildID string `json:"buildID,omitempty"`
	// srcversion is the source version, where the kernel has one.
	// +kubebuilder:validation:MaxLength=64
	SrcVersion string `json:"srcversion,omitempty"`
	// builtIn is true when the module is compiled into the kernel.
	BuiltIn bool `json:"builtIn,omitempty"`
	// adopted is true when the same build was live before the agent loaded anything.
	Adopted bool `json:"adopted,omitempty"`
	// unusable is true while a check of readyWhen fails: live, but not ready.
	Unusable bool `json:"unusable,omitempty"`
	// repairs counts how often the kernel module disappeared in this boot and was loaded again.
	// Another build or other parameters begin at 0.
	Repairs int32 `json:"repairs,omitempty"`
	// loadBegan is when the agent began to load what is live, by the node's clock. Unset: the agent
	// found it live, or it is built in. Earlier users of the module used another instance of it.
	LoadBegan *metav1.Time `json:"loadBegan,omitempty"`
	// lastRepair is when the agent began the last repair, by the node's clock. Unset: none.
	LastRepair *metav1.Time `json:"lastRepair,omitempty"`
	// taint are the module's taint letters as in /sys/module/<name>/taint.
	// +kubebuilder:validation:MaxLength=64
	Taint string `json:"taint,omitempty"`
	// parameters are the readable parameters right after the load; not all, if many or long.
	// +kubebuilder:validation:MaxProperties=256
	Parameters map[string]string `json:"parameters,omitempty"`
}

// AttemptState says what stands between an order and its fulfilment.
//
// +kubebuilder:validation:Enum=Waiting;Failed;InUse;Absent;Unclaimed
type AttemptState string

const (
	// AttemptWaiting says: the agent waits for the delivery or for something else to end.
	AttemptWaiting AttemptState = "Waiting"
	// AttemptFailed says: the last try failed; it is repeated at nextRetry.
	AttemptFailed AttemptState = "Failed"
	// AttemptInUse says: the module should go, but somebody uses it.
	AttemptInUse AttemptState = "InUse"
	// AttemptAbsent acknowledges an unload order: the module is not in the kernel.
	AttemptAbsent AttemptState = "Absent"
	// AttemptUnclaimed says: loaded by the agent, live, and no order names it. It is kept.
	AttemptUnclaimed AttemptState = "Unclaimed"
)

// NodeModuleAttempt is an order that is not fulfilled.
type NodeModuleAttempt struct {
	// name of the Module.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the Module.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// order identifies the order that this is about, by its state, config, delivery and
	// unloadPolicy. Unset: there is none, or the agent is older than this field.
	// +kubebuilder:validation:MaxLength=64
	Order string `json:"order,omitempty"`
	// state of the attempt.
	State AttemptState `json:"state"`
	// reason of the closed set, in CamelCase.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// message for people, with the next step; at most 10 kernel log lines (1 KiB).
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
	// attempt counts tries since the order changed, as of the last write. Further failures of the
	// same kind are written at most every 5 minutes.
	Attempt int32 `json:"attempt,omitempty"`
	// nextRetry is when it is tried again. Once it has passed, attempt is a lower bound: at least
	// one more try follows every 5 minutes.
	NextRetry *metav1.Time `json:"nextRetry,omitempty"`
	// holders are the first pods of this node, as namespace/name, that use a module that should go.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	Holders []string `json:"holders,omitempty"`
	// holderUIDs are the UIDs of holders, in their order: another pod that gets the name of one is not
	// meant. Unset: the agent does not tell them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=36
	HolderUIDs []string `json:"holderUIDs,omitempty"`
	// strikes counts node crashes during a load of this build.
	Strikes int32 `json:"strikes,omitempty"`
	// strike is the last of them, while it keeps the build out.
	Strike *Strike `json:"strike,omitempty"`
	// lastTransitionTime is when state or reason changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// Strike is a crash of the node for which a load is to blame.
type Strike struct {
	// delivery is the id of what was to be loaded.
	// +kubebuilder:validation:MaxLength=128
	Delivery string `json:"delivery"`
	// build names the kernel module and its build.
	// +kubebuilder:validation:MaxLength=1024
	Build string `json:"build"`
	// began is when that load began, by the node's clock: shortly before the node went down.
	Began metav1.Time `json:"began"`
	// retry is the last request to try again that the agent carried out, as in
	// spec.modules[].retry. Unset: none. Strikes count from then on.
	Retry *metav1.Time `json:"retry,omitempty"`
	// evidence is true when the kernel itself named the module.
	Evidence bool `json:"evidence,omitempty"`
	// kept is true when the strike was not excused, because another was excused not long ago.
	Kept bool `json:"kept,omitempty"`
}

// NodeArtifact is a delivery that the node holds.
type NodeArtifact struct {
	// id as in spec.modules[].delivery.id.
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`
	// digest of the imported tree (sha256, hex).
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest"`
}
