// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LolcowWorkspace is what the operator has to remember about the Lolcow of the same name, which it belongs to: what no spec says and no look at
// the world shows. No controller watches it. Only the operator writes it, and it reads it from the API server and never from a cache.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LolcowWorkspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// data is what is remembered, by key.
	// +optional
	Data map[string]string `json:"data,omitempty"`
}

// LolcowWorkspaceList is a list of LolcowWorkspaces.
//
// +kubebuilder:object:root=true
type LolcowWorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LolcowWorkspace `json:"items"`
}
