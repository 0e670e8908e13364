// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LolcowWorkspace is what the operator has to remember about the Lolcow of the same name, which it
// belongs to: what no spec says and no look at the world shows. No controller watches it. Only the
// operator writes it, and it reads it from the API server and never from a cache.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LolcowWorkspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec LolcowWorkspaceSpec `json:"spec,omitempty"`
}

// Pending is where the nonces of effects are that have been begun.
func (w *LolcowWorkspace) Pending() *map[string]string { return &w.Spec.Pending }

// Done is where the nonces of effects are that have happened.
func (w *LolcowWorkspace) Done() *map[string]string { return &w.Spec.Done }

// LolcowWorkspaceList is a list of LolcowWorkspaces.
//
// +kubebuilder:object:root=true
type LolcowWorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LolcowWorkspace `json:"items"`
}

// LolcowWorkspaceSpec is what is remembered. An effect is one greeting that is told to one
// announceURL; its name has a digest of both.
type LolcowWorkspaceSpec struct {
	// pending are the nonces of effects that have been begun and may have happened, by effect.
	// +optional
	Pending map[string]string `json:"pending,omitempty"`

	// done are the nonces of effects that have happened, by effect.
	// +optional
	Done map[string]string `json:"done,omitempty"`
}
