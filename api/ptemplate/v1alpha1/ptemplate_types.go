// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of fields that are not set. The same ones stand in the markers below, so that they show in
// the stored object; only the consumer's does not, because of its two names.
const (
	DefaultMaxDev          = 5
	DefaultMessage         = "ptemplate"
	DefaultRequiredDevices = 1

	// DefaultDriverImage has one tag for each kernel.
	DefaultDriverImage       = "registry.example.com/drover/ptemplate-char-dev:1.0-${KERNEL_FULL_VERSION}"
	DefaultDevicePluginImage = "registry.example.com/drover/sample-device-plugin:1.0"
	DefaultConsumerImage     = "registry.example.com/drover/sample-consumer:1.0"
)

// Ptemplate puts the kernel module ptemplate_char_dev on nodes, offers the devices that it makes,
// and runs a pod that uses some of them on each of these nodes. It becomes a Module of
// kmm.sigs.x-k8s.io of the same name, and a DaemonSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.spec.maxdev`,description="Devices per node"
// +kubebuilder:printcolumn:name="Required",type=integer,JSONPath=`.spec.requiredDevices`,description="Devices that each consumer gets"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Consumers",type=string,priority=1,JSONPath=`.status.consumers`,description="Pods that use the devices"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Ptemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PtemplateSpec   `json:"spec"`
	Status PtemplateStatus `json:"status,omitempty"`
}

// Conditions are those of the status.
func (p *Ptemplate) Conditions() *[]metav1.Condition { return &p.Status.Conditions }

// PtemplateList is a list of Ptemplates.
//
// +kubebuilder:object:root=true
type PtemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Ptemplate `json:"items"`
}

// PtemplateSpec is the user's wish.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.consumer) && has(self.consumerimage))",message="consumer and consumerimage are one field by two names: set one of them"
// +kubebuilder:validation:XValidation:rule="!(has(self.imageRepoSecret) && has(self.imagePullSecret))",message="imageRepoSecret and imagePullSecret are one field by two names: set one of them"
// +kubebuilder:validation:XValidation:rule="self.requiredDevices <= self.maxdev",message="requiredDevices must not be more than maxdev: no node would have as many"
type PtemplateSpec struct {
	// maxdev is how many devices each node gets: the kernel module's parameter max_dev. It has room
	// for 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	MaxDev int32 `json:"maxdev,omitempty"`

	// defaultmsg is what a device reads as before something was written to it: the kernel module's
	// parameter default_msg. Visible characters of ASCII but ", without blanks: the kernel would read
	// what follows a blank as another parameter.
	// +optional
	// +kubebuilder:default=ptemplate
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[!#-~]*$`
	DefaultMsg string `json:"defaultmsg,omitempty"`

	// driverImage holds the kernel module. Template variables are substituted, such as
	// ${KERNEL_FULL_VERSION}.
	// +optional
	// +kubebuilder:default="registry.example.com/drover/ptemplate-char-dev:1.0-${KERNEL_FULL_VERSION}"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	DriverImage string `json:"driverImage,omitempty"`

	// deviceplugin is the device plugin's image.
	// +optional
	// +kubebuilder:default="registry.example.com/drover/sample-device-plugin:1.0"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	DevicePlugin string `json:"deviceplugin,omitempty"`

	// consumer is the image of the pods that use the devices. Default
	// registry.example.com/drover/sample-consumer:1.0.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Consumer string `json:"consumer,omitempty"`

	// consumerimage is another name of consumer. Set one of them.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ConsumerImage string `json:"consumerimage,omitempty"`

	// requiredDevices is how many devices each consumer gets, to itself.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	RequiredDevices int32 `json:"requiredDevices,omitempty"`

	// imageRepoSecret names the Secret, of this namespace, with which all images are pulled.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name != ''",message="name must be set"
	ImageRepoSecret *corev1.LocalObjectReference `json:"imageRepoSecret,omitempty"`

	// imagePullSecret is another name of imageRepoSecret. Set one of them.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name != ''",message="name must be set"
	ImagePullSecret *corev1.LocalObjectReference `json:"imagePullSecret,omitempty"`

	// selector chooses nodes by label; all labels must match. {} chooses every Linux node.
	// +kubebuilder:validation:MaxProperties=64
	Selector map[string]string `json:"selector"`
}

// PtemplateStatus is what was seen.
type PtemplateStatus struct {
	// consumers are the names of the running pods that use the devices, sorted.
	// +optional
	// +listType=atomic
	Consumers []string `json:"consumers,omitempty"`

	// conditions: Ready is True when the kernel module, its devices and their consumers are on every
	// node that they are for. Errored is True when that needs somebody's doing.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
