// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// ManagedClusterModule asks for a Module on each cluster that it selects, the spokes. The hub
// builds and signs the images, once for each kernel of all spokes, and a spoke gets its Module when
// all images for its kernels exist.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=mcm
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no more than 63 bytes: it is the value of a label"
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.numberDesired`
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.numberApplied`
// +kubebuilder:printcolumn:name="Ready-Clusters",type=integer,JSONPath=`.status.numberReady`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManagedClusterModule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ManagedClusterModuleSpec   `json:"spec,omitempty"`
	Status ManagedClusterModuleStatus `json:"status,omitempty"`
}

// ManagedClusterModuleList is a list of ManagedClusterModules.
//
// +kubebuilder:object:root=true
type ManagedClusterModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ManagedClusterModule `json:"items"`
}

// ManagedClusterModuleSpec is what is asked for.
type ManagedClusterModuleSpec struct {
	// moduleSpec is the Module's spec on each spoke. Builds and signatures are done on the hub, with
	// Secrets and ConfigMaps of the namespace of the hub's operator, and do not reach a spoke.
	// +optional
	ModuleSpec v1beta1.ModuleSpec `json:"moduleSpec,omitempty"`

	// spokeNamespace is the Module's namespace on each spoke.
	// +kubebuilder:validation:MaxLength=63
	SpokeNamespace string `json:"spokeNamespace"`

	// selector chooses clusters by the labels of their ManagedCluster, or of the Secret with their
	// kubeconfig; all must match.
	Selector map[string]string `json:"selector"`

	// rollout sets the order in which clusters get a change. Unset: all at once.
	// +optional
	Rollout *ClusterRollout `json:"rollout,omitempty"`
}

// ClusterRollout sets the order in which clusters get a change, their first Module included. A wave
// begins when all clusters of the one before are Ready with the change, and have been for the soak
// time. On each cluster, moduleSpec.rollout sets the order of nodes.
type ClusterRollout struct {
	// waves in their order. The first wave's clusters are the canaries. Clusters that no wave selects
	// come last.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Waves []Wave `json:"waves,omitempty"`

	// maxConcurrency is how many clusters of a wave, a number or a percentage (rounded down, at least
	// one), may be changing or failed at a time. Unset: all of the wave. It also limits how many
	// clusters that are no longer selected may lose the Module at a time. If there are more, they keep
	// it until the annotation drover.dev/confirm-deselection confirms it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxConcurrency must be a number from 1 to 100000, or a percentage from 1% to 100%"
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`

	// soak is how long a cluster must be Ready with a change until it counts.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$`
	Soak *metav1.Duration `json:"soak,omitempty"`

	// pauseOnFailure stops the rollout while a cluster has failed with the change. Default true.
	// +optional
	PauseOnFailure *bool `json:"pauseOnFailure,omitempty"`

	// paused: no further cluster gets the change.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// Wave is some clusters of a rollout.
type Wave struct {
	// name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// selector chooses clusters by label, except those of earlier waves; all labels must match.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Selector map[string]string `json:"selector"`
}

// ManagedClusterModuleStatus is what was observed.
type ManagedClusterModuleStatus struct {
	// numberDesired is the number of clusters that the selector chooses.
	// +optional
	NumberDesired int32 `json:"numberDesired,omitempty"`

	// numberApplied is the number of clusters that have the Module.
	// +optional
	NumberApplied int32 `json:"numberApplied,omitempty"`

	// numberDegraded is the number of clusters that refuse the Module.
	// +optional
	NumberDegraded int32 `json:"numberDegraded,omitempty"`

	// numberReady is the number of clusters on which the Module is Ready as specified here.
	// +optional
	NumberReady int32 `json:"numberReady,omitempty"`

	// observedGeneration is the generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, ImagesAvailable and Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// moduleLoader counts the nodes of all clusters together, as far as they report them.
	// +optional
	ModuleLoader v1beta1.DaemonSetStatus `json:"moduleLoader,omitempty"`

	// wave is the first wave that is not Ready with what is wanted. Empty if all are, or without
	// rollout.
	// +optional
	Wave string `json:"wave,omitempty"`

	// clusters are the selected clusters: first those that are not Ready, the worst first, then the
	// others by name; at most 256.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Clusters []ClusterStatus `json:"clusters,omitempty"`
}

// ClusterStatus is how one cluster stands.
type ClusterStatus struct {
	// name of the cluster.
	Name string `json:"name"`

	// ready: the Module is Ready there as specified here.
	Ready bool `json:"ready"`

	// desiredNumber is the number of nodes that should have the kernel module, as the cluster reports
	// it.
	// +optional
	DesiredNumber int32 `json:"desiredNumber,omitempty"`

	// availableNumber is the number of nodes that have it.
	// +optional
	AvailableNumber int32 `json:"availableNumber,omitempty"`

	// reason why the Module is not Ready, one of a Module's reasons.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says what is wrong, and on which node, for the ten worst clusters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
