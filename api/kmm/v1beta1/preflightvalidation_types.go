// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// PreflightValidation asks whether the Modules of the cluster are ready for a kernel. Version
// v1beta2 replaces it; both have the same fields, so the API server converts by name alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="kmm.sigs.x-k8s.io/v1beta1 PreflightValidation is deprecated; use v1beta2"
// +kubebuilder:resource:scope=Cluster,shortName=pfv
// +kubebuilder:printcolumn:name="Kernel",type=string,JSONPath=`.spec.kernelVersion`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PreflightValidation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1beta2.PreflightValidationSpec   `json:"spec"`
	Status v1beta2.PreflightValidationStatus `json:"status,omitempty"`
}

// PreflightValidationList is a list of PreflightValidations.
//
// +kubebuilder:object:root=true
type PreflightValidationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PreflightValidation `json:"items"`
}
