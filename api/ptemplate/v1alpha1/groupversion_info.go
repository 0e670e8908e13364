// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the wire format of the pt.example.com/v1alpha1 API: Ptemplate, an example of
// a device with a kernel module, a device plugin and pods that use it.
//
// +kubebuilder:object:generate=true
// +groupName=pt.example.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "pt.example.com", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Ptemplate{}, &PtemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
