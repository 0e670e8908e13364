// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// ModuleImage is a kernel module image that the cluster builds, signs or examines, for one kernel
// and one set of inputs. The operator writes it for Modules and PreflightValidations; do not edit
// it. Its name follows from its inputs, so that the same inputs are never built twice.
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

// ModuleImageSpec holds the inputs of an image, with variables substituted and defaults merged, and
// who wants it.
type ModuleImageSpec struct {
	// module is the Module, in the same namespace, that the image belongs to.
	Module string `json:"module"`

	// kernelVersion that the image is for, as `uname -r` prints it.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9._+~]{0,63}$`
	KernelVersion string `json:"kernelVersion"`

	// architecture that the image is for, as Go and container images spell it.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{0,16}$`
	Architecture string `json:"architecture"`

	// image is the reference to push to.
	Image string `json:"image"`

	// dirName is the directory in the image that holds lib/modules/<kernel>.
	DirName string `json:"dirName,omitempty"`

	// declaration is a digest of the inputs that the Module declares.
	Declaration string `json:"declaration"`

	// hash is a digest of all inputs, which the image carries as an annotation.
	Hash string `json:"hash"`

	// wantedBy names who wants the image now. If empty, no Job runs.
	// +listType=set
	WantedBy []string `json:"wantedBy,omitempty"`

	// trigger is the Module's rebuild trigger. A change has the registry checked again.
	Trigger *int `json:"trigger,omitempty"`

	// retry is when somebody asked for another try. Earlier failures do not count.
	Retry *metav1.Time `json:"retry,omitempty"`

	// build says how to build the image. Unset: it is not built.
	Build *ImageBuild `json:"build,omitempty"`

	// sign says how to sign the image. Unset: it is not signed.
	Sign *ImageSign `json:"sign,omitempty"`

	// examine says what to examine the image for, without loading its kernel modules. An image that is
	// made for that is not pushed. Unset: the image is pushed and not examined.
	Examine *ImageExamine `json:"examine,omitempty"`

	// registryTLS are the TLS settings of the image's registry.
	RegistryTLS v1beta1.TLSOptions `json:"registryTLS,omitempty"`

	// repoSecrets are the Secrets to pull and push with.
	// +listType=atomic
	RepoSecrets []corev1.LocalObjectReference `json:"repoSecrets,omitempty"`

	// serviceAccountName of the Job's pods.
	ServiceAccountName string `json:"serviceAccountName"`

	// selector is the Module's. The Job runs on its nodes, unless build or sign has a selector.
	// +mapType=atomic
	Selector map[string]string `json:"selector,omitempty"`

	// tolerations of the Job's pods.
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ImageBuild is a build with all settings merged.
type ImageBuild struct {
	// dockerfileConfigMap is the ConfigMap that holds the Dockerfile.
	DockerfileConfigMap string `json:"dockerfileConfigMap,omitempty"`

	// native is a build without a Dockerfile.
	Native *v1beta1.NativeBuild `json:"native,omitempty"`

	// sourceDigest is the SHA-256, in hex, of the Dockerfile or of the source's ConfigMap.
	SourceDigest string `json:"sourceDigest,omitempty"`

	// builder is the image that builds from the Dockerfile.
	Builder string `json:"builder,omitempty"`

	// args are the build arguments, ordered by name.
	// +listType=atomic
	Args []v1beta1.BuildArg `json:"args,omitempty"`

	// secrets are mounted at /run/secrets/<name>.
	// +listType=atomic
	Secrets []string `json:"secrets,omitempty"`

	// selector chooses the nodes on which the build may run.
	// +mapType=atomic
	Selector map[string]string `json:"selector,omitempty"`

	// baseImageRegistryTLS are the TLS settings of the base images' registry.
	BaseImageRegistryTLS v1beta1.TLSOptions `json:"baseImageRegistryTLS,omitempty"`

	// resources of the container that compiles; they override the operator's.
	Resources *v1beta1.BuildResources `json:"resources,omitempty"`
}

// ImageSign is a signature with all settings merged.
type ImageSign struct {
	// keySecret is the Secret that holds the private key.
	KeySecret string `json:"keySecret"`

	// certSecret is the Secret that holds the certificate.
	CertSecret string `json:"certSecret"`

	// files are patterns of the paths of kernel modules in the image.
	// +listType=atomic
	Files []string `json:"files,omitempty"`

	// unsignedImage is the image to sign if nothing is built, or else where the unsigned image is
	// pushed to.
	UnsignedImage string `json:"unsignedImage,omitempty"`

	// selector chooses the nodes on which the image may be signed.
	// +mapType=atomic
	Selector map[string]string `json:"selector,omitempty"`

	// unsignedImageRegistryTLS are the TLS settings of the unsigned image's registry.
	UnsignedImageRegistryTLS v1beta1.TLSOptions `json:"unsignedImageRegistryTLS,omitempty"`
}

// ImageExamine says what to examine an image for.
type ImageExamine struct {
	// modules to load. Empty: all of the image.
	// +listType=atomic
	Modules []string `json:"modules,omitempty"`

	// loadOrder is the order in which to load them.
	// +listType=atomic
	LoadOrder []string `json:"loadOrder,omitempty"`

	// firmwarePath is the directory in the image that holds firmware.
	FirmwarePath string `json:"firmwarePath,omitempty"`

	// generation of the Module, set for prebuilt images: a changed Module has its image examined
	// again.
	Generation int64 `json:"generation,omitempty"`
}

// ConditionAvailable is True while the registry has the image, by the last check.
const ConditionAvailable = "Available"

// Conditions of kstatus: one of the two exists, and is True, while the image is wanted and not
// available.
const (
	// ConditionReconciling: the operator makes the image, or will try again.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the operator does not try again until something changes.
	ConditionStalled = "Stalled"
)

// ModuleImageStatus is what the Jobs show.
type ModuleImageStatus struct {
	// observedGeneration is the generation that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Available, Reconciling and Stalled.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// image is the reference, with its digest, of the image in the registry.
	Image string `json:"image,omitempty"`

	// prebuilt is true if the registry had an image that Drover did not make. Nodes use it as it is.
	Prebuilt bool `json:"prebuilt,omitempty"`

	// signer is the certificate that signed the image.
	Signer *Signer `json:"signer,omitempty"`

	// job is the newest Job.
	Job string `json:"job,omitempty"`

	// failures counts the Jobs that failed in a row.
	Failures int32 `json:"failures,omitempty"`

	// nextTry is when the next Job begins after a failure.
	NextTry *metav1.Time `json:"nextTry,omitempty"`

	// checkedAt is when a check last found the image in the registry.
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
}

// Signer is a certificate that signed.
type Signer struct {
	// fingerprint is the SHA-256 of the certificate, in hex.
	Fingerprint string `json:"fingerprint"`

	// subject of the certificate.
	Subject string `json:"subject,omitempty"`

	// notAfter is when the certificate expires.
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}

const (
	// ImageLabel is on the Jobs of a ModuleImage and on their pods, with the ModuleImage's name.
	ImageLabel = "drover.dev/module-image"

	// HubLabel is on the Jobs of a hub, whose namespaces need hold no Module. Its value is empty.
	HubLabel = "drover.dev/hub"

	// ImagePrefix begins the name of every ModuleImage and of its Jobs.
	ImagePrefix = "drover-image-"
)
