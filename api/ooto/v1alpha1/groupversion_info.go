// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the wire format of the ooto.sigs.k8s.io/v1alpha1 API: an older form of
// Module, translated to kmm.sigs.x-k8s.io/v1beta1. It is experimental, and off unless config/ooto
// is installed.
//
// In every rule an empty value means "unset".
//
// +kubebuilder:object:generate=true
// +groupName=ooto.sigs.k8s.io
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "ooto.sigs.k8s.io", Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion under the name that generated code uses.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Module{}, &ModuleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
