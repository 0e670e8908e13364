// SPDX-License-Identifier: Apache-2.0

package ptemplate

// What the operator may do, and no more. The role is generated from this.
//
// +kubebuilder:rbac:groups=pt.example.com,resources=ptemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=pt.example.com,resources=ptemplates/status,verbs=get;patch
// +kubebuilder:rbac:groups=pt.example.com,resources=ptemplates/finalizers,verbs=update
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
