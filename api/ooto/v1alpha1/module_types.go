// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Module says which out-of-tree kernel module belongs on which nodes, and which device plugin follows it. It becomes a Module of
// kmm.sigs.x-k8s.io of the same name, which belongs to it and does the work.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, experimental-only"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.driverContainer.desiredNumberScheduled`,description="Nodes that shall hold the kernel module"
// +kubebuilder:printcolumn:name="Loaded",type=integer,JSONPath=`.status.driverContainer.numberAvailable`,description="Nodes on which the kernel module is live"
// +kubebuilder:printcolumn:name="Plugin",type=integer,JSONPath=`.status.devicePlugin.numberAvailable`,description="Nodes on which the device plugin is ready"
// +kubebuilder:printcolumn:name="Translated",type=string,JSONPath=`.status.conditions[?(@.type=="Translated")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Module struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ModuleSpec   `json:"spec"`
	Status ModuleStatus `json:"status,omitempty"`
}

// ModuleList is a list of Modules.
//
// +kubebuilder:object:root=true
type ModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Module `json:"items"`
}

// ModuleSpec is the user's wish.
type ModuleSpec struct {
	// devicePlugin is started on the nodes where the kernel module is ready.
	// +optional
	DevicePlugin *DevicePluginSpec `json:"devicePlugin,omitempty"`

	// driverContainer says what to load. There is no driver pod: the node's agent loads the kernel module from the image.
	DriverContainer DriverContainerSpec `json:"driverContainer"`

	// selector chooses nodes by label; all labels must match. {} chooses every Linux node.
	Selector map[string]string `json:"selector"`
}

// DevicePluginSpec describes the device plugin's pods.
type DevicePluginSpec struct {
	// container is the device plugin.
	Container DevicePluginContainer `json:"container"`

	// imagePullSecrets of the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// serviceAccountName of the pods. Unset: one is created.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// volumes are added to the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// DevicePluginContainer is the device plugin's container. /var/lib/kubelet/device-plugins is mounted without being asked for.
type DevicePluginContainer struct {
	// image of the container.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// imagePullPolicy of the container.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// command of the container.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`

	// args of the container.
	// +optional
	// +listType=atomic
	Args []string `json:"args,omitempty"`

	// env of the container.
	// +optional
	// +listType=atomic
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// securityContext of the container, exactly as given. Unset: privileged.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// volumeMounts are added to the container's own.
	// +optional
	// +listType=atomic
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// DriverContainerSpec describes the kernel module.
type DriverContainerSpec struct {
	// container holds the image, the mapping from kernels to images, and how images are built and signed.
	Container DriverContainer `json:"container"`

	// imageRepoSecrets are used to pull images, and to push those that are built and signed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ImageRepoSecrets []corev1.LocalObjectReference `json:"imageRepoSecrets,omitempty"`

	// serviceAccountName is the ServiceAccount of the pods that fetch, build and sign images.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// volumes are ignored: there is no driver pod.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// DriverContainer describes the kernel module's image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.containerImage) && size(self.containerImage) > 0) || self.kernelMappings.all(m, has(m.containerImage) && size(m.containerImage) > 0)",message="every kernel mapping needs a containerImage when container.containerImage is not set"
// +kubebuilder:validation:XValidation:rule="(has(self.build) && has(self.build.dockerfile) && size(self.build.dockerfile) > 0) || self.kernelMappings.all(m, !has(m.build) || (has(m.build.dockerfile) && size(m.build.dockerfile) > 0))",message="a kernel mapping that builds needs a dockerfile when container.build.dockerfile is not set"
type DriverContainer struct {
	// build are the settings of the kernel mappings that have a build themselves, be it {}. It makes none of the others build.
	// +optional
	Build *Build `json:"build,omitempty"`

	// containerImage is the default image of all kernel mappings. Template variables are substituted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':')",message="containerImage must name a tag or a digest"
	ContainerImage string `json:"containerImage,omitempty"`

	// kernelMappings relate kernels to images; the first one that matches a node's kernel wins.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	KernelMappings []KernelMapping `json:"kernelMappings"`

	// modprobe says what is loaded from the image. Unset: the kernel module of this object's name, with "_" for "-".
	// +optional
	Modprobe *Modprobe `json:"modprobe,omitempty"`

	// securityContext is ignored: there is no driver pod.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// volumeMounts are ignored: there is no driver pod.
	// +optional
	// +listType=atomic
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// Modprobe says what is loaded from the image. Drivers that loaded their module themselves did not have to say it.
type Modprobe struct {
	// moduleName is the kernel module to load. Unset: this object's name, with "_" for "-".
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ModuleName string `json:"moduleName,omitempty"`

	// parameters are passed to the kernel module, each as key=value.
	// +optional
	// +listType=atomic
	Parameters []string `json:"parameters,omitempty"`

	// dirName is the directory in the image below which lib/modules/<kernel> lies. Unset: /opt.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DirName string `json:"dirName,omitempty"`
}

// KernelMapping relates kernels to an image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.regexp) && size(self.regexp) > 0) != (has(self.literal) && size(self.literal) > 0)",message="exactly one of regexp and literal must be set: they are mutually exclusive"
type KernelMapping struct {
	// literal is compared with the node's kernel version.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Literal string `json:"literal,omitempty"`

	// regexp (RE2, not anchored) is matched against the node's kernel version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) ? true : true",message="regexp must be a valid RE2 regular expression"
	Regexp string `json:"regexp,omitempty"`

	// containerImage of this mapping; empty: the container's. Template variables are substituted.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':')",message="containerImage must name a tag or a digest"
	ContainerImage string `json:"containerImage,omitempty"`

	// build makes the image when it is not there. {} builds as the container says; what is set here is put over that. Unset: nothing is built.
	// +optional
	Build *Build `json:"build,omitempty"`

	// sign signs kernel modules of the image.
	// +optional
	Sign *Sign `json:"sign,omitempty"`
}

// Build describes an in-cluster build of the kernel module's image.
type Build struct {
	// buildArgs are passed to the build; a mapping's override the container's by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	BuildArgs []BuildArg `json:"buildArgs,omitempty"`

	// dockerfile is what is built from, as it would stand in a file.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Dockerfile string `json:"dockerfile,omitempty"`

	// pull is about the base images.
	// +optional
	Pull *Pull `json:"pull,omitempty"`

	// push says where what is built goes to. Unset: to the mapping's containerImage.
	// +optional
	Push *Push `json:"push,omitempty"`
}

// BuildArg is one build argument.
type BuildArg struct {
	// name of the argument.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// value of the argument.
	Value string `json:"value"`
}

// Pull is how base images are pulled.
type Pull struct {
	// insecure allows plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`
}

// Push is where what is built goes to.
type Push struct {
	// insecure allows plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// name of the image, with template variables; ${CONTAINER_IMAGE} is the mapping's containerImage, and the default. Only an image that is
	// signed afterwards may have another name.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`
}

// Sign describes the signing of kernel modules.
type Sign struct {
	// unsignedImage is what is signed. Unset, where there is a build: what is built.
	// +optional
	UnsignedImage *Image `json:"unsignedImage,omitempty"`

	// signedImage is what comes of it, and what nodes get in place of containerImage. Unset: containerImage.
	// +optional
	SignedImage *SignedImage `json:"signedImage,omitempty"`

	// keySecret holds the private key under the key "key".
	KeySecret SecretReference `json:"keySecret"`

	// certSecret holds the certificate under the key "cert".
	CertSecret SecretReference `json:"certSecret"`

	// filesToSign are globs of kernel modules in the image, below modprobe.dirName.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	FilesToSign []string `json:"filesToSign"`
}

// SecretReference names a Secret of the Module's namespace.
type SecretReference struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Image names an image.
type Image struct {
	// name of the image, with template variables; ${CONTAINER_IMAGE} is the mapping's containerImage.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`
}

// SignedImage names the image that signing makes.
type SignedImage struct {
	Image `json:",inline"`

	// pushSecretRef names a Secret for that image's registry. It is tried before imageRepoSecrets.
	// +optional
	PushSecretRef *SecretReference `json:"pushSecretRef,omitempty"`
}

// ModuleStatus is what was observed.
type ModuleStatus struct {
	// observedGeneration is the generation of this Module that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Translated and AllFieldsUsed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// devicePlugin counts nodes of the device plugin. Unset: none is asked for.
	// +optional
	DevicePlugin *NodeCounts `json:"devicePlugin,omitempty"`

	// driverContainer counts nodes of the kernel module.
	// +optional
	DriverContainer *NodeCounts `json:"driverContainer,omitempty"`
}

// NodeCounts are numbers of nodes, as the KMM Module's status has them.
type NodeCounts struct {
	// desiredNumberScheduled is the number of nodes that shall have it.
	DesiredNumberScheduled int32 `json:"desiredNumberScheduled"`

	// numberReady is the number of nodes that have it, and where it is ready.
	NumberReady int32 `json:"numberReady"`

	// numberAvailable is the same: nothing here has to be ready for a while before it counts.
	NumberAvailable int32 `json:"numberAvailable"`
}
