// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultDrainTimeout is spec.rollout.drainOptions.timeout where it is not set.
const DefaultDrainTimeout = 10 * time.Minute

// DrainOptions are what kubectl drain has as flags.
type DrainOptions struct {
	// force evicts pods without a controller, which nothing would bring back. Default false: such a pod keeps its node from being changed, and no
	// other pod of that node is evicted.
	// +optional
	Force bool `json:"force,omitempty"`

	// deleteEmptyDirData evicts pods with emptyDir volumes, whose content is lost. Default false: such a pod keeps its node from being changed, and
	// no other pod of that node is evicted.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// timeout is how long pods may take to leave a node until the Module's condition says DrainBlocked and names them. Nothing is killed: the drain
	// goes on. Default 10m. It begins anew when the operator is started anew.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// waitForCompletion are labels of pods in any namespace, all of which a pod must have, that end by themselves: they are not evicted, and as long as
	// one of them runs no other pod is. The node is cordoned meanwhile where drain is Node.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	WaitForCompletion map[string]string `json:"waitForCompletion,omitempty"`
}

// RolloutSpec says how changes reach the nodes that have the kernel module already. First loads wait for nothing but their image.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drainOptions) || has(self.drain) && self.drain in ['Holders', 'Node']",message="drainOptions need drain to be Holders or Node"
type RolloutSpec struct {
	// maxUnavailable is how many of the Module's nodes, a number or a percentage (rounded down, at least one), may be without the kernel module
	// at a time because of a change: nodes that are being changed, that failed, or that are not Ready. Default 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable must be a number from 1 to 100000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// soak is how long a changed node must hold the kernel module until it counts as available: the first one before the others begin.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	Soak *metav1.Duration `json:"soak,omitempty"`

	// pauseOnFailure stops the rollout as long as one node has failed with what is being rolled out. Default true.
	// +optional
	PauseOnFailure *bool `json:"pauseOnFailure,omitempty"`

	// paused stops the rollout: no further node that has the kernel module is changed. Nodes that are being changed go on.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// drain says which pods are evicted so that the kernel module can be unloaded for a change, by the eviction API, which respects
	// PodDisruptionBudgets. None (default): none; pods that use it are waited for. Holders: those of the pods that use it, as the node's agent
	// names them; not those of DaemonSets. Node: the node is cordoned and all its pods are evicted first, but those of DaemonSets and static
	// pods; afterwards a cordon that was Drover's is taken back. The deletion of the Module drains nothing. Pods that nothing would bring back
	// and pods with emptyDir volumes are not evicted unless drainOptions says so: they keep their node from being changed.
	// +optional
	Drain DrainPolicy `json:"drain,omitempty"`

	// drainOptions say which pods drain may evict, which it waits for, and when it is said that a node does not become free.
	// +optional
	DrainOptions *DrainOptions `json:"drainOptions,omitempty"`

	// deselectGracePeriod is how long a node must be without the selector's labels, or its kernel without a mapping, until the kernel module
	// is unloaded there: labels that flap unload nothing. Default 5m; 0s: at once.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	DeselectGracePeriod *metav1.Duration `json:"deselectGracePeriod,omitempty"`
}

// DrainPolicy says which pods are evicted for a change.
//
// +kubebuilder:validation:Enum="";None;Holders;Node
type DrainPolicy string

const (
	// DrainNone (or empty) evicts nobody.
	DrainNone DrainPolicy = "None"
	// DrainHolders evicts the pods that use the kernel module.
	DrainHolders DrainPolicy = "Holders"
	// DrainNode cordons the node and evicts all its pods.
	DrainNode DrainPolicy = "Node"
)
