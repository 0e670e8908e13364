// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 is the wire format of the kmm.sigs.x-k8s.io/v1beta1 API: Module (what a user
// wants), NodeModulesConfig (what one node should hold and what its kernel holds) and the older
// version of PreflightValidation (see v1beta2).
//
// Every field of upstream Kernel Module Management keeps its name, default and meaning; Drover only
// adds fields. In every rule an empty value means "unset".
//
// +kubebuilder:object:generate=true
// +groupName=kmm.sigs.x-k8s.io
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "kmm.sigs.x-k8s.io", Version: "v1beta1"}

// SchemeGroupVersion is GroupVersion under the name that generated code uses.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Module{}, &ModuleList{}, &NodeModulesConfig{}, &NodeModulesConfigList{},
		&PreflightValidation{}, &PreflightValidationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
