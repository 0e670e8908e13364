// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Defaults of DeviceConfigSpec. The CustomResourceDefinition sets them, so that they are seen in
// the object.
const (
	// DefaultModuleName is spec.moduleName where it is not set.
	DefaultModuleName = "he_sample_kernel_module"
	// DefaultKernelRegexp is spec.kernelRegexp where it is not set: kernels of Enterprise Linux, such
	// as 4.18.0-553.el8_10.x86_64.
	DefaultKernelRegexp = `^.+\.el\d+(_\d+)?\..+$`
	// DefaultNodeLabel is the label that Node Feature Discovery puts on nodes with the sample's PCI
	// device. With the value "true" it is spec.nodeSelector where that is not set, or empty.
	DefaultNodeLabel = "feature.node.kubernetes.io/pci-1da3.present"
)

// DeviceConfig puts one version of a driver on a group of nodes that no other DeviceConfig manages.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.driverImage`,description="Repository of the driver's images"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.driverVersion`,description="Version of the driver"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DeviceConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DeviceConfigSpec   `json:"spec"`
	Status DeviceConfigStatus `json:"status,omitempty"`
}

// Conditions is where the conditions are kept.
func (d *DeviceConfig) Conditions() *[]metav1.Condition { return &d.Status.Conditions }

// DeviceConfigList is a list of DeviceConfigs.
//
// +kubebuilder:object:root=true
type DeviceConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeviceConfig `json:"items"`
}

// DeviceConfigSpec is the user's wish.
type DeviceConfigSpec struct {
	// driverImage is the repository of the driver's prebuilt images, without a tag. The image for a
	// node is <driverImage>:<driverVersion>-<kernel version>, every character of the kernel version
	// that a tag may not hold replaced by "_".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="!self.contains('@') && !self.split('/')[size(self.split('/')) - 1].contains(':')",message="driverImage must have neither a tag nor a digest: driverVersion and the node's kernel version become the tag"
	// +kubebuilder:validation:XValidation:rule="self.contains('@') || self.split('/')[size(self.split('/')) - 1].contains(':') || self.matches('^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*$')",message="driverImage must be the name of an image's repository, such as registry.example.com/vendor/driver"
	DriverImage string `json:"driverImage"`

	// driverVersion is the driver's version, the first part of the image's tag.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*$')",message="driverVersion is part of an image's tag: letters, digits, '_', '.' and '-', of which the last two do not come first"
	DriverVersion string `json:"driverVersion"`

	// nodeSelector chooses nodes by label; all labels must match. A node that another DeviceConfig
	// manages is not taken from it. Unset or empty: the nodes with the sample's PCI device, as Node
	// Feature Discovery labels them.
	// +optional
	// +kubebuilder:default={"feature.node.kubernetes.io/pci-1da3.present":"true"}
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// moduleName is the kernel module to load, as lsmod shows it.
	// +optional
	// +kubebuilder:default=he_sample_kernel_module
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=55
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	ModuleName string `json:"moduleName,omitempty"`

	// kernelRegexp (RE2, not anchored) says for which kernels there are images. Nodes with other
	// kernels are left alone.
	// +optional
	// +kubebuilder:default=`^.+\.el\d+(_\d+)?\..+$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) ? true : true",message="kernelRegexp must be a valid RE2 regular expression"
	KernelRegexp string `json:"kernelRegexp,omitempty"`

	// devicePluginImage is the device plugin that offers the driver's devices to pods, such as
	// Drover's sample, whose variables say what to offer: /dev/he_sample* as example.com/he-sample.
	// Unset: there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DevicePluginImage string `json:"devicePluginImage,omitempty"`

	// serviceAccountName is the ServiceAccount whose pull secrets fetch the driver's images. It has to
	// be there. Unset: one named after this object, with "-driver" appended, is created and goes with
	// it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// DeviceConfigStatus is what was observed.
type DeviceConfigStatus struct {
	// conditions are Ready and Errored.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
