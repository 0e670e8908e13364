// SPDX-License-Identifier: Apache-2.0

// Package deviceconfig is the operator of DeviceConfigs of example.com: each becomes a Module of
// kmm.sigs.x-k8s.io, which loads the kernel module and offers the devices, and a ServiceAccount.
//
// Reads: DeviceConfigs, Modules, ServiceAccounts, labels of Nodes. Writes: its own Modules and
// ServiceAccounts, finalizers and status of DeviceConfigs, events.
package deviceconfig

// +kubebuilder:rbac:groups=example.com,resources=deviceconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=example.com,resources=deviceconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=example.com,resources=deviceconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
