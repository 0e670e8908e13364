// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// Build describes an in-cluster build of the kernel module image.
type Build struct {
	// buildArgs are passed to the build; a mapping's override the container's by name.
	// +optional
	BuildArgs []BuildArg `json:"buildArgs,omitempty"`

	// dockerfileConfigMap holds the Dockerfile under the key "dockerfile".
	// +optional
	DockerfileConfigMap *corev1.LocalObjectReference `json:"dockerfileConfigMap,omitempty"`

	// baseImageRegistryTLS are the TLS settings of the base images' registry.
	// +optional
	BaseImageRegistryTLS TLSOptions `json:"baseImageRegistryTLS,omitempty"`

	// secrets are mounted at /run/secrets/<name> during the build.
	// +optional
	Secrets []corev1.LocalObjectReference `json:"secrets,omitempty"`

	// selector chooses the nodes on which the build may run.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`

	// kanikoParams is accepted for compatibility.
	// +optional
	KanikoParams *KanikoParams `json:"kanikoParams,omitempty"`
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
	// +optional
	Tag string `json:"tag,omitempty"`
}

// Sign describes the signing of kernel modules.
type Sign struct {
	// unsignedImage is the image to sign when nothing is built. Template variables are substituted.
	// +optional
	UnsignedImage string `json:"unsignedImage,omitempty"`

	// unsignedImageRegistryTLS are the TLS settings of that image's registry.
	// +optional
	UnsignedImageRegistryTLS TLSOptions `json:"unsignedImageRegistryTLS,omitempty"`

	// keySecret holds the private key under the key "key".
	KeySecret *corev1.LocalObjectReference `json:"keySecret"`

	// certSecret holds the certificate under the key "cert".
	CertSecret *corev1.LocalObjectReference `json:"certSecret"`

	// filesToSign are globs of kernel modules in the image.
	// +optional
	FilesToSign []string `json:"filesToSign,omitempty"`
}

// TLSOptions weaken TLS towards a registry.
type TLSOptions struct {
	// insecure allows plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// insecureSkipTLSVerify skips the check of the registry's certificate.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}
