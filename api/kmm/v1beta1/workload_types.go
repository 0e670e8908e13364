// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// DevicePluginSpec describes the device plugin pods.
type DevicePluginSpec struct {
	// container is the device plugin.
	Container WorkloadContainer `json:"container"`

	// initContainer runs before it.
	InitContainer *WorkloadContainer `json:"initContainer,omitempty"`

	// imagePullSecrets of the pods, besides the Module's imageRepoSecret and imageRepoSecrets.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// serviceAccountName of the pods. Unset: one is created for this Module.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// automountServiceAccountToken of the pods.
	AutomountServiceAccountToken *bool `json:"automountServiceAccountToken,omitempty"`

	// volumes are added to the pods.
	// +kubebuilder:validation:MaxItems=128
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// DRASpec describes the Dynamic Resource Allocation driver pods.
type DRASpec struct {
	// container is the DRA driver.
	Container WorkloadContainer `json:"container"`

	// initContainer runs before it.
	InitContainer *WorkloadContainer `json:"initContainer,omitempty"`

	// driverName is the DRA driver's name, a DNS subdomain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	DriverName string `json:"driverName"`

	// deviceClasses are created for this driver.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	DeviceClasses []DeviceClassSpec `json:"deviceClasses,omitempty"`

	// serviceAccountName of the pods. Unset: one is created for this Module.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// automountServiceAccountToken of the pods.
	AutomountServiceAccountToken *bool `json:"automountServiceAccountToken,omitempty"`

	// volumes are added to the pods.
	// +kubebuilder:validation:MaxItems=128
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// hostNetwork gives the pods the node's network. Unset: a network of their own, so that health
	// checks of several drivers on a node do not collide.
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// DeviceClassSpec describes one DeviceClass.
type DeviceClassSpec struct {
	// name of the DeviceClass.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// selectors of the DeviceClass.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Selectors []resourcev1.DeviceSelector `json:"selectors,omitempty"`

	// config of the DeviceClass.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Config []resourcev1.DeviceClassConfiguration `json:"config,omitempty"`
}

// WorkloadContainer is what a Module sets of the container of a device plugin or DRA driver.
type WorkloadContainer struct {
	// args of the container.
	Args []string `json:"args,omitempty"`

	// command of the container.
	Command []string `json:"command,omitempty"`

	// env of the container.
	Env []corev1.EnvVar `json:"env,omitempty"`

	// image of the container.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// imagePullPolicy of the container.
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// resources of the container.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// volumeMounts of the container.
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// securityContext of the container, exactly as given. Unset: privileged, as upstream.
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
}
