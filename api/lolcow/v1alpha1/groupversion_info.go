// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the wire format of the my.domain/v1alpha1 API: a Lolcow is a web page with a
// cow that says a greeting.
//
// In every rule an empty value means "unset".
//
// +kubebuilder:object:generate=true
// +groupName=my.domain
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "my.domain", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Lolcow{}, &LolcowList{}, &LolcowWorkspace{}, &LolcowWorkspaceList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
