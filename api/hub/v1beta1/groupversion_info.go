// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 is the wire format of hub.kmm.sigs.x-k8s.io/v1beta1: Modules for many clusters,
// with upstream's fields and Drover's.
//
// +kubebuilder:object:generate=true
// +groupName=hub.kmm.sigs.x-k8s.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "hub.kmm.sigs.x-k8s.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ManagedClusterModule{}, &ManagedClusterModuleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
