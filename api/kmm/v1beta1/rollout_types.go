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
	// force evicts pods without a controller, which nothing would restart. Default false: such a pod
	// keeps its node from being changed, and the node's other pods stay.
	Force bool `json:"force,omitempty"`

	// deleteEmptyDirData evicts pods with emptyDir volumes, whose content is lost. Default false:
	// such a pod keeps its node from being changed, and the node's other pods stay.
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// timeout is how long pods may take to leave a node before the Module reports DrainBlocked and
	// names them. Nothing is killed: the drain goes on. Default 10m, counted again after a restart
	// of the operator.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// waitForCompletion are labels, all of which a pod must have. Such pods, in any namespace, end by
	// themselves: they are not evicted, and while one runs, no other pod is. With drain: Node, the
	// node is cordoned meanwhile.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	WaitForCompletion map[string]string `json:"waitForCompletion,omitempty"`
}

// RolloutSpec says how changes reach nodes that have the kernel module. First loads do not wait,
// unless they take out in-tree modules.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drainOptions) || has(self.drain) && self.drain in ['Holders', 'Node']",message="drainOptions need drain to be Holders or Node"
type RolloutSpec struct {
	// maxUnavailable is how many of the Module's nodes, as a number or a percentage (rounded down, at
	// least one), may be without the kernel module at a time because of a change: nodes that are
	// being changed, that failed, or that are not Ready. Default 10%.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable must be a number from 1 to 100000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// soak is how long a changed node must hold the kernel module before it counts as available.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	Soak *metav1.Duration `json:"soak,omitempty"`

	// pauseOnFailure stops the rollout while a node has failed with the change. Default true.
	PauseOnFailure *bool `json:"pauseOnFailure,omitempty"`

	// paused stops the rollout: no further node is changed, or loads the kernel module for the first
	// time. Nodes that are being changed go on.
	Paused bool `json:"paused,omitempty"`

	// drain says which pods the eviction API removes before a change, within PodDisruptionBudgets.
	// None (default): none; Drover waits for pods that use the kernel module. Holders: those pods, as
	// the node's agent names them, except DaemonSet pods. Node: Drover cordons the node and evicts
	// all its pods except DaemonSet and static pods, and takes its own cordon back afterwards.
	// Deleting the Module drains nothing. Pods without a controller and pods with emptyDir volumes
	// are evicted only if drainOptions says so; otherwise they keep their node from being changed.
	Drain DrainPolicy `json:"drain,omitempty"`

	// drainOptions say which pods drain may evict, which it waits for, and when it reports a delay.
	DrainOptions *DrainOptions `json:"drainOptions,omitempty"`

	// deselectGracePeriod is how long a node must lack the selector's labels, its kernel a mapping, or
	// the Module a moduleLoader, before the kernel module is unloaded there. Default 5m; 0s: at once.
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
