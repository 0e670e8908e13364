// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ModulePolicy limits what Modules may bring into kernels: in which namespaces, on which nodes,
// which kernel modules, from which images, with which parameters. Where no ModulePolicy applies,
// everything is allowed. Where several do, each of them must allow it. Nothing is ever unloaded
// for a ModulePolicy.
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
// the beginning of one if it ends with *.
type ModulePolicySpec struct {
	// mode Enforce refuses what is not allowed. Audit lets it pass with a warning, to try a policy.
	Mode ModulePolicyMode `json:"mode"`

	// namespaceSelector chooses the namespaces whose Modules are limited. Unset or {}: all. Each
	// namespace has its name in the label kubernetes.io/metadata.name.
	NamespaceSelector *ModulePolicySelector `json:"namespaceSelector,omitempty"`

	// nodeSelector chooses the nodes on which Modules are limited. Unset or {}: all.
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

	// modprobeArgs Deny lets no Module set modprobe.args or modprobe.rawArgs. These can name any
	// kernel module and parameter. Default: Deny with modules or parameters, Allow without.
	ModprobeArgs Permission `json:"modprobeArgs,omitempty"`
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
