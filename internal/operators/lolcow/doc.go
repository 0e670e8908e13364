// SPDX-License-Identifier: Apache-2.0

// Package lolcow is the operator of Lolcows: each becomes a Deployment that runs a web page with a cow, and a Service that reaches it by a port on
// every node. A changed greeting replaces the pods, a changed port changes the same Service.
//
// Reads: Lolcows, Deployments, Services, and LolcowWorkspaces from the API server. Writes: Deployments, Services and LolcowWorkspaces, its own only,
// and the status of Lolcows. Deletion is left to owner references.
package lolcow

// Name is the operator's name: its controller's, its field owner's, the source of its events.
const Name = "lolcow-operator"
