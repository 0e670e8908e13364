// SPDX-License-Identifier: Apache-2.0

package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PreflightValidation asks whether the cluster's Modules are ready for a kernel that no node needs
// to run: whether each has a mapping, an image that exists or can be made, and kernel modules that
// fit. Nothing is loaded; only pods that examine or make images run.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=pfv
// +kubebuilder:printcolumn:name="Kernel",type=string,JSONPath=`.spec.kernelVersion`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PreflightValidation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PreflightValidationSpec   `json:"spec"`
	Status PreflightValidationStatus `json:"status,omitempty"`
}

// PreflightValidationList is a list of PreflightValidations.
//
// +kubebuilder:object:root=true
type PreflightValidationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PreflightValidation `json:"items"`
}

// PreflightValidationSpec says which kernel, and for which nodes.
type PreflightValidationSpec struct {
	// kernelVersion is the whole version of the kernel, as `uname -r` prints it.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z_+~]+([.,-]+[0-9A-Za-z_+~]+){2,}$`
	KernelVersion string `json:"kernelVersion"`

	// pushBuiltImage pushes images that are made on the way to where the Module names them.
	// Otherwise they are made as a test and pushed nowhere.
	PushBuiltImage bool `json:"pushBuiltImage,omitempty"`

	// labels of a node that would run the kernel: only Modules that select them. Empty: all Modules.
	// +kubebuilder:validation:MaxProperties=256
	Labels map[string]string `json:"labels,omitempty"`
}

// VerificationStatus is how a Module stands.
//
// +kubebuilder:validation:Enum=Success;Failure;InProgress
type VerificationStatus string

// Statuses of a Module.
const (
	VerificationSuccess    VerificationStatus = "Success"
	VerificationFailure    VerificationStatus = "Failure"
	VerificationInProgress VerificationStatus = "InProgress"
)

// VerificationStage is how far the look at a Module has come.
//
// +kubebuilder:validation:Enum=Image;Done
type VerificationStage string

// Stages of the look at a Module.
const (
	// StageImage: the image is looked for, made, or examined.
	StageImage VerificationStage = "Image"
	// StageDone: there is an answer.
	StageDone VerificationStage = "Done"
)

// PreflightValidationStatus is what was found out so far.
type PreflightValidationStatus struct {
	// observedGeneration is the generation that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions hold Ready: True when every Module is ready for the kernel.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// modules hold what was found of each Module.
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	Modules []PreflightValidationModuleStatus `json:"modules,omitempty"`

	// crStatuses hold the same in the form of v1beta1, by "namespace/name" and, as upstream, by name
	// alone: of several Modules with one name, the worst.
	CRStatuses map[string]CRStatus `json:"crStatuses,omitempty"`
}

// PreflightValidationModuleStatus is what was found of one Module.
type PreflightValidationModuleStatus struct {
	CRStatus `json:",inline"`

	// namespace of the Module.
	Namespace string `json:"namespace"`

	// name of the Module.
	Name string `json:"name"`

	// reason of the status, of the closed set of docs/reference/reasons.md; none for a success.
	Reason string `json:"reason,omitempty"`

	// image that the Module names for the kernel.
	Image string `json:"image,omitempty"`
}

// CRStatus is how one Module stands.
type CRStatus struct {
	// verificationStatus says whether the Module is ready for the kernel.
	VerificationStatus VerificationStatus `json:"verificationStatus"`

	// statusReason says why, in words.
	StatusReason string `json:"statusReason,omitempty"`

	// verificationStage is Done when there is an answer.
	VerificationStage VerificationStage `json:"verificationStage"`

	// lastTransitionTime is when verificationStatus became what it is.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}
