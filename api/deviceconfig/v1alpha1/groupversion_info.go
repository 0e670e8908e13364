// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the wire format of the example.com/v1alpha1 API: DeviceConfig, the sample of
// a device operator's own API. A DeviceConfig names a driver and the nodes that shall have it, and
// becomes a Module of kmm.sigs.x-k8s.io, which does the work.
//
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DeviceConfig{}, &DeviceConfigList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
