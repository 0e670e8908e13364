// SPDX-License-Identifier: Apache-2.0

// Command work-agent is Open Cluster Management's own agent, which brings ManifestWorks to a
// cluster and tells the hub of them. Tests run it on spokes.
package main

import (
	"os"

	"open-cluster-management.io/ocm/pkg/cmd/spoke"
)

func main() {
	if err := spoke.NewWorkAgent().Execute(); err != nil {
		os.Exit(1) // it has said why
	}
}
