// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// Build describes an in-cluster build of the kernel module image.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.native) && has(self.dockerfileConfigMap) && has(self.dockerfileConfigMap.name) && size(self.dockerfileConfigMap.name) > 0)",message="dockerfileConfigMap and native are mutually exclusive"
type Build struct {
	// buildArgs are passed to the build; a mapping's override the container's by name.
	BuildArgs []BuildArg `json:"buildArgs,omitempty"`

	// dockerfileConfigMap holds the Dockerfile under the key "dockerfile".
	DockerfileConfigMap *corev1.LocalObjectReference `json:"dockerfileConfigMap,omitempty"`

	// baseImageRegistryTLS are the TLS settings of the base images' registry.
	BaseImageRegistryTLS TLSOptions `json:"baseImageRegistryTLS,omitempty"`

	// secrets are mounted at /run/secrets/<name> during the build.
	Secrets []corev1.LocalObjectReference `json:"secrets,omitempty"`

	// selector chooses the nodes on which the build may run, and so see its Secrets. Unset: the nodes
	// of sign.selector, else those of the Module's selector. If both are set, a node must have all
	// labels of both.
	Selector map[string]string `json:"selector,omitempty"`

	// native compiles without a Dockerfile, in a pod that Pod Security "restricted" admits.
	Native *NativeBuild `json:"native,omitempty"`

	// push says where what is built goes to. Unset: to the mapping's containerImage.
	Push *BuildPush `json:"push,omitempty"`

	// resources of the compiling container. They override --build-requests and --build-limits.
	Resources *BuildResources `json:"resources,omitempty"`

	// kanikoParams is accepted for compatibility.
	KanikoParams *KanikoParams `json:"kanikoParams,omitempty"`
}

// BuildResources are a build's requests and limits of cpu, memory and ephemeral-storage.
type BuildResources struct {
	// requests are what the scheduler finds a node by.
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",message="must be of cpu, memory and ephemeral-storage"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits are what the build gets at most. A default request above a limit becomes that limit.
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",message="must be of cpu, memory and ephemeral-storage"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// BuildPush says where a built image goes.
type BuildPush struct {
	// name of the image, with template variables. Default: ${CONTAINER_IMAGE}. Only an image that
	// is signed afterwards may have another name, as with sign.unsignedImage.
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`

	// TLS settings of that image's registry.
	TLSOptions `json:",inline"`
}

// NativeBuild compiles in an ordinary pod: a toolchain, the kernel's headers and the source go in,
// and the named files come out as an image of one layer. Images may contain template variables;
// the command finds them, and the build arguments, in its environment.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.sourceImage) && size(self.sourceImage) > 0 && has(self.sourceConfigMap) && has(self.sourceConfigMap.name) && size(self.sourceConfigMap.name) > 0)",message="sourceImage and sourceConfigMap are mutually exclusive"
type NativeBuild struct {
	// toolchainImage holds the compiler, and a shell at /bin/sh.
	// +kubebuilder:validation:MaxLength=512
	ToolchainImage string `json:"toolchainImage,omitempty"`

	// headersImage holds the kernel's headers, mounted at /headers. Unset: toolchainImage has them.
	// +kubebuilder:validation:MaxLength=512
	HeadersImage string `json:"headersImage,omitempty"`

	// sourceImage holds the source, mounted read-only at /source and copied to the working directory.
	// +kubebuilder:validation:MaxLength=512
	SourceImage string `json:"sourceImage,omitempty"`

	// sourceConfigMap holds the source, one file per key; used as sourceImage is.
	SourceConfigMap *corev1.LocalObjectReference `json:"sourceConfigMap,omitempty"`

	// command compiles, in the working directory. $(NAME) stands for a variable. Default: make.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Command []string `json:"command,omitempty"`

	// artifacts are the files to keep, as globs below the working directory. Default: every *.ko.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	Artifacts []string `json:"artifacts,omitempty"`
}

// BuildArg is one build argument.
type BuildArg struct {
	// name of the argument.
	Name string `json:"name"`
	// value of the argument.
	Value string `json:"value"`
}

// KanikoParams are accepted for compatibility with Modules written for upstream.
type KanikoParams struct {
	// tag of the kaniko image.
	Tag string `json:"tag,omitempty"`
}

// Sign describes the signing of kernel modules.
type Sign struct {
	// unsignedImage is the image to sign when nothing is built. Template variables are substituted.
	UnsignedImage string `json:"unsignedImage,omitempty"`

	// unsignedImageRegistryTLS are the TLS settings of that image's registry.
	UnsignedImageRegistryTLS TLSOptions `json:"unsignedImageRegistryTLS,omitempty"`

	// keySecret holds the private key under the key "key".
	KeySecret *corev1.LocalObjectReference `json:"keySecret"`

	// certSecret holds the certificate under the key "cert".
	CertSecret *corev1.LocalObjectReference `json:"certSecret"`

	// filesToSign are globs of kernel modules in the image.
	FilesToSign []string `json:"filesToSign,omitempty"`

	// selector chooses the nodes on which the image may be signed, and so see the key. Unset: the
	// nodes of build.selector, else those of the Module's selector. If both are set, a node must have
	// all labels of both.
	Selector map[string]string `json:"selector,omitempty"`
}

// TLSOptions weaken TLS towards a registry.
type TLSOptions struct {
	// insecure allows plain HTTP.
	Insecure bool `json:"insecure,omitempty"`

	// insecureSkipTLSVerify skips the check of the registry's certificate.
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}
