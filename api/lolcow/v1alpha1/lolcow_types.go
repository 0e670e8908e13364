// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lolcow is a web page with a cow that says a greeting. It becomes a Deployment and a Service,
// which belong to it.
//
// Its name is also the Deployment's, and a label's value; that of the Service, too, unless
// spec.serviceName says another.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Greeting",type=string,JSONPath=`.spec.greeting`,description="What the cow shall say"
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.status.nodePort`,description="Port of the page on every node"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name must be a DNS label of at most 63 characters that begins with a letter: the Service has it, too"
type Lolcow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec LolcowSpec `json:"spec,omitempty"`
	// +optional
	Status LolcowStatus `json:"status,omitempty"`
}

// Conditions is where the conditions are kept.
func (l *Lolcow) Conditions() *[]metav1.Condition { return &l.Status.Conditions }

// LolcowList is a list of Lolcows.
//
// +kubebuilder:object:root=true
type LolcowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Lolcow `json:"items"`
}

// LolcowSpec is the user's wish.
type LolcowSpec struct {
	// greeting is what the cow says, character for character. Unset: it tells a fortune.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="a program's argument holds no NUL character"
	Greeting string `json:"greeting,omitempty"`

	// port of the page on every node (nodePort of the Service), 30000 to 32767. Unset: the cluster
	// chooses one, and it stays.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || (self >= 30000 && self <= 32767)",message="must be in the range 30000-32767, or unset for one that the cluster chooses"
	Port int32 `json:"port,omitempty"`

	// serviceName is the Service's name. Unset: that of the Lolcow.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]*[a-z0-9])?)?$`
	ServiceName string `json:"serviceName,omitempty"`

	// image of the page. Its entry point gets the greeting as its only argument, or none, and serves
	// HTTP on the port of the environment variable PORT.
	// +optional
	// +kubebuilder:default="ghcr.io/vsoch/lolcow-operator"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// announceURL is told each new greeting once, when the page shows it: by a POST of
	// {"namespace","name","greeting"} as JSON, with the header Idempotency-Key. The operator may die
	// between the request and the moment it takes note of it, and then sends the request again with
	// the same key: a server that honours the key sees each greeting once. Any status of 200 to 299 is
	// success; redirects are not followed.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self == '' || (isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != '' && !self.matches('^[^/]*//[^/]*@'))",message="must be a URL with the scheme http or https and a host, without a user"
	AnnounceURL string `json:"announceURL,omitempty"`
}

// LolcowStatus is what was seen last. Nothing is read from it.
type LolcowStatus struct {
	// conditions are Ready and Errored. docs/guide/lolcow.md has the next step for each reason.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// greeting that every pod of the page was started with.
	// +optional
	Greeting string `json:"greeting,omitempty"`

	// serviceName is the Service that reaches the page.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`

	// nodePort is the Service's port on every node.
	// +optional
	NodePort int32 `json:"nodePort,omitempty"`

	// announced is the greeting that announceURL took last.
	// +optional
	Announced string `json:"announced,omitempty"`
}

// Reasons of the conditions besides those of every device operator.
const (
	// ReasonPortConflict: another Service has the port.
	ReasonPortConflict = "PortConflict"
	// ReasonRollingOut: not every pod says the greeting yet.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutFailed: the Deployment says that it does not get its pods, or does not get them to
	// run.
	ReasonRolloutFailed = "RolloutFailed"
	// ReasonAnnounceFailed: announceURL has not taken the greeting.
	ReasonAnnounceFailed = "AnnounceFailed"
)
