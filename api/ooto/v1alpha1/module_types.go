// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Module says which out-of-tree kernel module belongs on which nodes, and which device plugin
// follows it. It owns a Module of kmm.sigs.x-k8s.io of the same name, which does the work.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, experimental-only"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.driverContainer.desiredNumberScheduled`,description="Nodes that should hold the kernel module"
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
	DevicePlugin *DevicePluginSpec `json:"devicePlugin,omitempty"`

	// driverContainer says what to load. There is no driver pod: the node's agent loads the image.
	DriverContainer DriverContainerSpec `json:"driverContainer"`

	// selector chooses nodes by label; all labels must match. {} chooses every Linux node.
	Selector map[string]string `json:"selector"`
}

// DevicePluginSpec describes the device plugin's pods.
type DevicePluginSpec struct {
	// container is the device plugin.
	Container DevicePluginContainer `json:"container"`

	// imagePullSecrets of the pods.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// serviceAccountName of the pods. Unset: one is created.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// volumes are added to the pods.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// DevicePluginContainer is the device plugin's container, with /var/lib/kubelet/device-plugins.
type DevicePluginContainer struct {
	// image of the container.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// imagePullPolicy of the container.
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// command of the container.
	// +listType=atomic
	Command []string `json:"command,omitempty"`

	// args of the container.
	// +listType=atomic
	Args []string `json:"args,omitempty"`

	// env of the container.
	// +listType=atomic
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the container.
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// securityContext of the container, exactly as given. Unset: privileged.
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// volumeMounts are added to the container's own.
	// +listType=atomic
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// DriverContainerSpec describes the kernel module.
type DriverContainerSpec struct {
	// container holds the image, the kernel mappings, and how images are built and signed.
	Container DriverContainer `json:"container"`

	// imageRepoSecrets are used to pull images, and to push built and signed ones.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ImageRepoSecrets []corev1.LocalObjectReference `json:"imageRepoSecrets,omitempty"`

	// serviceAccountName is the ServiceAccount of the pods that fetch, build and sign images.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// volumes are ignored: there is no driver pod.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// DriverContainer describes the kernel module's image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.containerImage) && size(self.containerImage) > 0) || self.kernelMappings.all(m, has(m.containerImage) && size(m.containerImage) > 0)",message="every kernel mapping needs a containerImage when container.containerImage is not set"
// +kubebuilder:validation:XValidation:rule="(has(self.build) && has(self.build.dockerfile) && size(self.build.dockerfile) > 0) || self.kernelMappings.all(m, !has(m.build) || (has(m.build.dockerfile) && size(m.build.dockerfile) > 0))",message="a kernel mapping that builds needs a dockerfile when container.build.dockerfile is not set"
type DriverContainer struct {
	// build are the settings of the kernel mappings that have a build themselves, even {}.
	Build *Build `json:"build,omitempty"`

	// containerImage is the default image of all kernel mappings. Template variables are substituted.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':')",message="containerImage must name a tag or a digest"
	ContainerImage string `json:"containerImage,omitempty"`

	// kernelMappings relate kernels to images; the first one that matches a node's kernel wins.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	KernelMappings []KernelMapping `json:"kernelMappings"`

	// modprobe says what to load from the image. Unset: this object's name, with "_" for "-".
	Modprobe *Modprobe `json:"modprobe,omitempty"`

	// securityContext is ignored: there is no driver pod.
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// volumeMounts are ignored: there is no driver pod.
	// +listType=atomic
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// Modprobe says what to load from the image.
type Modprobe struct {
	// moduleName is the kernel module to load. Unset: this object's name, with "_" for "-".
	// +kubebuilder:validation:MaxLength=256
	ModuleName string `json:"moduleName,omitempty"`

	// parameters are passed to the kernel module, each as key=value.
	// +listType=atomic
	Parameters []string `json:"parameters,omitempty"`

	// dirName is the directory in the image below which lib/modules/<kernel> lies. Unset: /opt.
	// +kubebuilder:validation:MaxLength=512
	DirName string `json:"dirName,omitempty"`
}

// KernelMapping relates kernels to an image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.regexp) && size(self.regexp) > 0) != (has(self.literal) && size(self.literal) > 0)",message="exactly one of regexp and literal must be set: they are mutually exclusive"
type KernelMapping struct {
	// literal is compared with the node's kernel version.
	// +kubebuilder:validation:MaxLength=256
	Literal string `json:"literal,omitempty"`

	// regexp (RE2, not anchored) is matched against the node's kernel version.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) ? true : true",message="regexp must be a valid RE2 regular expression"
	Regexp string `json:"regexp,omitempty"`

	// containerImage of this mapping; empty: the container's. Template variables are substituted.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':')",message="containerImage must name a tag or a digest"
	ContainerImage string `json:"containerImage,omitempty"`

	// build makes a missing image. {} builds as the container says; fields set here override that.
	Build *Build `json:"build,omitempty"`

	// sign signs kernel modules of the image.
	Sign *Sign `json:"sign,omitempty"`
}

// Build describes an in-cluster build of the kernel module's image.
type Build struct {
	// buildArgs are passed to the build; a mapping's override the container's by name.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	BuildArgs []BuildArg `json:"buildArgs,omitempty"`

	// dockerfile is the text of the Dockerfile.
	// +kubebuilder:validation:MaxLength=262144
	Dockerfile string `json:"dockerfile,omitempty"`

	// pull is about the base images.
	Pull *Pull `json:"pull,omitempty"`

	// push says where what is built goes to. Unset: to the mapping's containerImage.
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
	Insecure bool `json:"insecure,omitempty"`
}

// Push says where a built image goes.
type Push struct {
	// insecure allows plain HTTP.
	Insecure bool `json:"insecure,omitempty"`

	// name of the image, with template variables. Default: ${CONTAINER_IMAGE}, the mapping's. Only an
	// image that is signed afterwards may have another name.
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`
}

// Sign describes the signing of kernel modules.
type Sign struct {
	// unsignedImage is what is signed. Unset, where there is a build: what is built.
	UnsignedImage *Image `json:"unsignedImage,omitempty"`

	// signedImage is the result, which nodes get in place of containerImage. Unset: containerImage.
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
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`
}

// SignedImage names the image that signing makes.
type SignedImage struct {
	Image `json:",inline"`

	// pushSecretRef names a Secret for that image's registry, tried before imageRepoSecrets.
	PushSecretRef *SecretReference `json:"pushSecretRef,omitempty"`
}

// ModuleStatus is what was observed.
type ModuleStatus struct {
	// observedGeneration is the generation of this Module that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Translated and AllFieldsUsed.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// devicePlugin counts nodes of the device plugin. Unset: none is asked for.
	DevicePlugin *NodeCounts `json:"devicePlugin,omitempty"`

	// driverContainer counts nodes of the kernel module.
	DriverContainer *NodeCounts `json:"driverContainer,omitempty"`
}

// NodeCounts are numbers of nodes, as the KMM Module's status has them.
type NodeCounts struct {
	// desiredNumberScheduled is the number of nodes that should have it.
	DesiredNumberScheduled int32 `json:"desiredNumberScheduled"`

	// numberReady is the number of nodes on which it is ready.
	NumberReady int32 `json:"numberReady"`

	// numberAvailable is the same number.
	NumberAvailable int32 `json:"numberAvailable"`
}

// Condition types of a Module of this group. All have positive polarity; none is transient.
const (
	// ConditionReady repeats the KMM Module's, with reason and message. Unknown: not looked at yet.
	ConditionReady = "Ready"
	// ConditionTranslated is True while the KMM Module is what this one asks for.
	ConditionTranslated = "Translated"
	// ConditionAllFieldsUsed is True when no field that is set is without a meaning here.
	ConditionAllFieldsUsed = "AllFieldsUsed"
)

// Reasons of these conditions, besides the KMM Module's; docs/reference/ooto.md explains them.
const (
	// ReasonTranslated: the KMM Module is what this one asks for.
	ReasonTranslated = "Translated"
	// ReasonNameTaken: something of the wanted name is not this Module's, and is left alone.
	ReasonNameTaken = "NameTaken"
	// ReasonRefused: the API server refuses what this Module is translated to.
	ReasonRefused = "Refused"
	// ReasonTerminating: the KMM Module is being deleted; it is made again when it has gone.
	ReasonTerminating = "Terminating"
	// ReasonNoStatus: the KMM Module has not been looked at yet.
	ReasonNoStatus = "NoStatus"
	// ReasonAllFieldsUsed: every field that is set has a meaning.
	ReasonAllFieldsUsed = "AllFieldsUsed"
	// ReasonFieldIgnored: fields are set that have no meaning, because there is no driver pod.
	ReasonFieldIgnored = "FieldIgnored"
)
