// SPDX-License-Identifier: Apache-2.0

// Package agent is the agent's DaemonSet as it is installed. The static pod that loads at boot is
// made from it.
package agent

import _ "embed" // for the file

// DaemonSet is daemonset.yaml.
//
//go:embed daemonset.yaml
var DaemonSet []byte
