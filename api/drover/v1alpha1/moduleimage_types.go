// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// ModuleImage is one kernel module image that is built or signed in the cluster: for one kernel, from one set of inputs. It is made by
// the operator for Modules that ask for it, and is not meant to be written by people. Its name follows from its inputs, so that the
// same inputs are never built twice.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=kmodimg
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.module`
// +kubebuilder:printcolumn:name="Kernel",type=string,JSONPath=`.spec.kernelVersion`
// +kubebuilder:printcolumn:name="Wanted",type=string,JSONPath=`.spec.wantedBy`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.image`
// +kubebuilder:printcolumn:name="Signer-Expires",type=string,priority=1,JSONPath=`.status.signer.notAfter`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ModuleImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ModuleImageSpec   `json:"spec,omitempty"`
	Status ModuleImageStatus `json:"status,omitempty"`
}

// ModuleImageList is a list of ModuleImages.
//
// +kubebuilder:object:root=true
type ModuleImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ModuleImage `json:"items"`
}

// ModuleImageSpec holds the inputs of an image, all variables substituted and all defaults merged, and who wants it.
type ModuleImageSpec struct {
	// module is the Module, in the same namespace, whose image it is.
	Module string `json:"module"`

	// kernelVersion that the image is for.
	KernelVersion string `json:"kernelVersion"`

	// architecture of the nodes that it is for, as Go and container images spell it.
	Architecture string `json:"architecture"`

	// image is the reference that it is pushed to.
	Image string `json:"image"`

	// dirName is the directory in the image below which lib/modules/<kernel> lies.
	// +optional
	DirName string `json:"dirName,omitempty"`

	// declaration is a digest of all inputs that stand in the Module.
	Declaration string `json:"declaration"`

	// hash is a digest of all inputs. It travels as an annotation of the image.
	Hash string `json:"hash"`

	// wantedBy names who wants the image now. Nobody: no Job runs for it.
	// +optional
	// +listType=set
	WantedBy []string `json:"wantedBy,omitempty"`

	// trigger is the Module's rebuild trigger: another one makes the image be looked for again.
	// +optional
	Trigger *int `json:"trigger,omitempty"`

	// retry is when somebody asked for another try: failures from before it do not count.
	// +optional
	Retry *metav1.Time `json:"retry,omitempty"`

	// build says how it is built. Unset: it is not built, only signed.
	// +optional
	Build *ImageBuild `json:"build,omitempty"`

	// sign says how it is signed. Unset: it is not signed.
	// +optional
	Sign *ImageSign `json:"sign,omitempty"`

	// examine: its kernel modules are looked at, without loading them, and what has to be made for that is pushed nowhere. Unset: it is
	// pushed, and not looked at.
	// +optional
	Examine *ImageExamine `json:"examine,omitempty"`

	// registryTLS are the TLS settings of the registry that holds image.
	// +optional
	RegistryTLS v1beta1.TLSOptions `json:"registryTLS,omitempty"`

	// repoSecrets name the Secrets used to pull and push.
	// +optional
	// +listType=atomic
	RepoSecrets []corev1.LocalObjectReference `json:"repoSecrets,omitempty"`

	// serviceAccountName of the Job's pods.
	ServiceAccountName string `json:"serviceAccountName"`

	// tolerations of the Job's pods.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ImageBuild is a build with all settings merged.
type ImageBuild struct {
	// dockerfileConfigMap holds the Dockerfile.
	// +optional
	DockerfileConfigMap string `json:"dockerfileConfigMap,omitempty"`

	// native is a compilation without a Dockerfile.
	// +optional
	Native *v1beta1.NativeBuild `json:"native,omitempty"`

	// sourceDigest is the SHA-256, in hex, of the Dockerfile, or of what the source's ConfigMap holds.
	// +optional
	SourceDigest string `json:"sourceDigest,omitempty"`

	// builder is the image that builds; none for a native build.
	// +optional
	Builder string `json:"builder,omitempty"`

	// args are the build arguments, by name in order.
	// +optional
	// +listType=atomic
	Args []v1beta1.BuildArg `json:"args,omitempty"`

	// secrets are mounted at /run/secrets/<name>.
	// +optional
	// +listType=atomic
	Secrets []string `json:"secrets,omitempty"`

	// selector chooses the nodes on which the build may run.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`

	// baseImageRegistryTLS are the TLS settings of the base images' registry.
	// +optional
	BaseImageRegistryTLS v1beta1.TLSOptions `json:"baseImageRegistryTLS,omitempty"`

	// resources of the container that compiles, over the operator's.
	// +optional
	Resources *v1beta1.BuildResources `json:"resources,omitempty"`
}

// ImageSign is a signature with all settings merged.
type ImageSign struct {
	// keySecret holds the private key.
	KeySecret string `json:"keySecret"`

	// certSecret holds the certificate.
	CertSecret string `json:"certSecret"`

	// files are globs of kernel modules in the image.
	// +optional
	// +listType=atomic
	Files []string `json:"files,omitempty"`

	// unsignedImage is what is signed when nothing is built, and else where the unsigned image is pushed to as well.
	// +optional
	UnsignedImage string `json:"unsignedImage,omitempty"`

	// unsignedImageRegistryTLS are the TLS settings of that image's registry.
	// +optional
	UnsignedImageRegistryTLS v1beta1.TLSOptions `json:"unsignedImageRegistryTLS,omitempty"`
}

// ImageExamine says what an image is examined for.
type ImageExamine struct {
	// modules that shall be loaded. None: all that the image has.
	// +optional
	// +listType=atomic
	Modules []string `json:"modules,omitempty"`

	// loadOrder is the order in which they are loaded.
	// +optional
	// +listType=atomic
	LoadOrder []string `json:"loadOrder,omitempty"`

	// firmwarePath is the directory in the image that holds firmware.
	// +optional
	FirmwarePath string `json:"firmwarePath,omitempty"`

	// generation of the Module: of an image that is made elsewhere, another generation is a reason to look again.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// ConditionAvailable is True while the image is in the registry, as far as the last look there told.
const ConditionAvailable = "Available"

// What tools that wait for any kind of object look at: one of the two is there, and True, while the image is wanted and not there.
const (
	// ConditionReconciling: the image is not there, and is being made or will be tried again.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the image is not there, and nobody tries any more until somebody changes something.
	ConditionStalled = "Stalled"
)

// ModuleImageStatus is what the Jobs show.
type ModuleImageStatus struct {
	// observedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Available.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// image is the reference, with its digest, under which the image is there.
	// +optional
	Image string `json:"image,omitempty"`

	// prebuilt: the image was there already and is none of ours, so that it is used as it is.
	// +optional
	Prebuilt bool `json:"prebuilt,omitempty"`

	// signer is who signed it.
	// +optional
	Signer *Signer `json:"signer,omitempty"`

	// job is the newest Job.
	// +optional
	Job string `json:"job,omitempty"`

	// failures counts the Jobs that failed one after the other.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// nextTry is when the next Job begins after a failure.
	// +optional
	NextTry *metav1.Time `json:"nextTry,omitempty"`

	// checkedAt is when the registry was last found to hold the image.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
}

// Signer is a certificate that signed.
type Signer struct {
	// fingerprint is the SHA-256 of the certificate, in hex.
	Fingerprint string `json:"fingerprint"`

	// subject of the certificate.
	// +optional
	Subject string `json:"subject,omitempty"`

	// notAfter is when it expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}
