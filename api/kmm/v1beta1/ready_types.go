// SPDX-License-Identifier: Apache-2.0

package v1beta1

// ReadyCheck shows that the device of a kernel module can be used. Exactly one field is set.
type ReadyCheck struct {
	// deviceNode is a path below /dev that must be a device on the node, such as /dev/example0.
	// *, ? and [] stand for parts of one name; one match is enough.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/dev(/[^\s/.][^\s/]*)+$`
	DeviceNode string `json:"deviceNode,omitempty"`

	// sysfs is a file below /sys on the node.
	Sysfs *SysfsCheck `json:"sysfs,omitempty"`

	// command is the readiness probe of the device plugin or DRA driver: it ends with 0 when the
	// device can be used. It says nothing about the kernel module, which is ready before the pod.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	Command []string `json:"command,omitempty"`
}

// SysfsCheck is a file in sysfs.
type SysfsCheck struct {
	// path below /sys/block, /sys/bus, /sys/class, /sys/devices or /sys/module. *, ? and [] stand
	// for parts of one name; one match is enough.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/sys/(block|bus|class|devices|module)(/[^\s/.][^\s/]*)+$`
	Path string `json:"path"`

	// value that the file must hold, apart from blanks around it. Empty: the path must exist.
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value,omitempty"`
}
