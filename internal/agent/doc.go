// SPDX-License-Identifier: Apache-2.0

// Package agent makes one node's kernel hold what its NodeModulesConfig orders, and reports what the kernel says.
//
// Three parts, each testable alone: want (the API and the record on disk), do (a pure decision per order, then one
// journaled step), see (facts from the kernel, and the status computed from them). An unload is an order
// (state: Absent), never an absence: what the agent has loaded and finds no order for, it keeps and reports.
package agent

// The role of the agent. Its writes are narrowed further, to its own node, by an admission policy.
//
//+kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=nodemodulesconfigs,verbs=get;list;watch
//+kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=nodemodulesconfigs/status,verbs=patch
//+kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
