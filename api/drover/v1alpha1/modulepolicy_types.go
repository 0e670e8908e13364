// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// ModulePolicy limits what Modules may do beyond their namespace: what they bring into kernels,
// from which images, with which parameters, on which nodes, and what they may have evicted, started
// and removed there. Where no ModulePolicy applies, everything is allowed. Where several do, each
// of them must allow it. Nothing is ever unloaded for a ModulePolicy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kmodpol
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Load",type=string,JSONPath=`.spec.load`
// +kubebuilder:printcolumn:name="Modules",type=string,JSONPath=`.spec.modules`
// +kubebuilder:printcolumn:name="Images",type=string,JSONPath=`.spec.images`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ModulePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ModulePolicySpec `json:"spec"`
}

// ModulePolicyList is a list of ModulePolicies.
//
// +kubebuilder:object:root=true
type ModulePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ModulePolicy `json:"items"`
}

// ModulePolicySpec says where it applies, and what is allowed there. A pattern is a whole text, or
// the beginning of one if it ends with *. Unset, load, modules, images, parameters and build limit
// nothing, and each other field denies what it is about.
type ModulePolicySpec struct {
	// mode Enforce refuses what is not allowed. Audit lets it pass with a warning, to try a policy.
	Mode ModulePolicyMode `json:"mode"`

	// namespaceSelector chooses the namespaces whose Modules are limited. Unset or {}: all. Each
	// namespace has its name in the label kubernetes.io/metadata.name.
	NamespaceSelector *ModulePolicySelector `json:"namespaceSelector,omitempty"`

	// nodeSelector chooses the nodes on which Modules are limited. Unset or {}: all. It does not
	// narrow startupTaints, workloads, driverNames and deviceClasses, which belong to no node.
	NodeSelector *ModulePolicySelector `json:"nodeSelector,omitempty"`

	// load Deny lets no Module load anything there. Allow (default): what the other fields allow.
	Load Permission `json:"load,omitempty"`

	// modules are patterns of the names of kernel modules that Modules may load, or remove before
	// they load. "-" and "_" are the same. Unset: any.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9_-]+[*]?|[*])$`
	Modules []string `json:"modules,omitempty"`

	// images are patterns of the images that Modules may load from, and that they may sign, as
	// Modules write them. One that ends with * names the whole registry before it. Unset: any.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^([*]|[^*$\s]+|[^*$\s/]+/[^*$\s]*[*])$`
	Images []string `json:"images,omitempty"`

	// parameters that Modules may give to kernel modules. Unset: any.
	Parameters *ModulePolicyParameters `json:"parameters,omitempty"`

	// build Deny lets no Module load an image that it builds in the cluster. Default Allow.
	Build Permission `json:"build,omitempty"`

	// modprobeArgs Allow lets Modules set modprobe.args and modprobe.rawArgs. These can name any
	// kernel module and parameter. Default Deny.
	ModprobeArgs Permission `json:"modprobeArgs,omitempty"`

	// firmware Allow lets Modules set modprobe.firmwarePath. Their files come before the node's own,
	// for every driver. Default Deny.
	Firmware Permission `json:"firmware,omitempty"`

	// drain is the most that spec.rollout.drain of Modules may be, which evicts pods of all
	// namespaces: None (default), Holders or Node.
	Drain v1beta1.DrainPolicy `json:"drain,omitempty"`

	// startupTaints are patterns of the keys of taints that Modules may have removed from nodes. Those
	// of a Module's own namespace are always allowed. Others also need the operator's
	// --startup-taints. Unset: none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=316
	// +kubebuilder:validation:items:Pattern=`^([*]|[A-Za-z0-9][A-Za-z0-9_./-]*[*]?)$`
	StartupTaints []string `json:"startupTaints,omitempty"`

	// workloads are the device plugins and DRA drivers that Modules may run in pods. Unset: none.
	Workloads *ModulePolicyWorkloads `json:"workloads,omitempty"`

	// driverNames are patterns of the names of DRA drivers. Unset: none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^([*]|[a-z0-9][a-z0-9.-]*[*]?)$`
	DriverNames []string `json:"driverNames,omitempty"`

	// deviceClasses are patterns of the names of DeviceClasses that Modules may have made. Unset:
	// none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=254
	// +kubebuilder:validation:items:Pattern=`^([*]|[a-z0-9][a-z0-9.-]*[*]?)$`
	DeviceClasses []string `json:"deviceClasses,omitempty"`
}

// ModulePolicyWorkloads are device plugins and DRA drivers, which run in pods of the Module's
// namespace.
type ModulePolicyWorkloads struct {
	// images are patterns of their images. One that ends with * names the whole registry before it.
	// Unset: any.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^([*]|[^*$\s]+|[^*$\s/]+/[^*$\s]*[*])$`
	Images []string `json:"images,omitempty"`

	// privileged Allow lets their containers be privileged, which they are without a securityContext,
	// and their pods have hostPath volumes and the node's network. Default Deny.
	Privileged Permission `json:"privileged,omitempty"`

	// priorityClassName of their pods, such as system-node-critical, which they have without a
	// ModulePolicy. Unset, or where policies differ: the cluster's default.
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// ModulePolicyMode says what becomes of what is not allowed.
//
// +kubebuilder:validation:Enum=Enforce;Audit
type ModulePolicyMode string

const (
	// PolicyEnforce refuses it.
	PolicyEnforce ModulePolicyMode = "Enforce"
	// PolicyAudit warns of it.
	PolicyAudit ModulePolicyMode = "Audit"
)

// Permission allows or denies.
//
// +kubebuilder:validation:Enum=Allow;Deny
type Permission string

const (
	// Allow it.
	Allow Permission = "Allow"
	// Deny it.
	Deny Permission = "Deny"
)

// ModulePolicyParameters are parameters of kernel modules.
type ModulePolicyParameters struct {
	// only these patterns of whole parameters, such as debug=0 or mode=*. Unset or empty: none.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[^*]*[*]?$`
	Only []string `json:"only,omitempty"`
}

// ModulePolicySelector chooses objects by their labels, as a Kubernetes label selector. All that it
// says must hold.
type ModulePolicySelector struct {
	// matchLabels are labels that the object has.
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// matchExpressions are what else is true of its labels.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []ModulePolicyRequirement `json:"matchExpressions,omitempty"`
}

// ModulePolicyRequirement is what must be true of one label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="values belong to the operators In and NotIn, which need at least one"
type ModulePolicyRequirement struct {
	// key of the label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// operator is In, NotIn, Exists or DoesNotExist.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values of In and NotIn. NotIn is also true of an object without the label.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}
