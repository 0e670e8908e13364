// SPDX-License-Identifier: Apache-2.0

// Package lolcow is the operator of Lolcows: each becomes a Deployment that serves a web page with
// a cow, and a Service that reaches it by a port on every node. A changed greeting replaces the
// pod, a changed port changes the Service.
//
// Reads: Lolcows, Deployments, Services, and LolcowWorkspaces from the API server. Writes: its own
// Deployments, Services and LolcowWorkspaces, which owner references delete; status of Lolcows.
package lolcow

// Name of the operator, its controller, its field manager and its events.
const Name = "lolcow-operator"
