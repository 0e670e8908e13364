// SPDX-License-Identifier: Apache-2.0

package main

// ofAgents are in the agent on each node.
var ofAgents = []mutation{}
