// SPDX-License-Identifier: Apache-2.0

// Package v1beta2 is the wire format of the kmm.sigs.x-k8s.io/v1beta2 API: PreflightValidation,
// which asks ahead of time whether a cluster's Modules are ready for a kernel. Version v1beta1 has
// the same fields, so that the API server converts by the version's name and needs no webhook.
//
// +kubebuilder:object:generate=true
// +groupName=kmm.sigs.x-k8s.io
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "kmm.sigs.x-k8s.io", Version: "v1beta2"}

// SchemeGroupVersion is GroupVersion under the name that generated code uses.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PreflightValidation{}, &PreflightValidationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
