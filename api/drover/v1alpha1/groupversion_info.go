// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the wire format of drover.dev/v1alpha1: what Drover adds to KMM's API.
//
// +kubebuilder:object:generate=true
// +groupName=drover.dev
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "drover.dev", Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion under the name that generated code uses.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ModuleImage{}, &ModuleImageList{}, &ModulePolicy{}, &ModulePolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
