// SPDX-License-Identifier: Apache-2.0

// Command devcluster is a whole Kubernetes control plane in one binary. Called
// by the name of a component (etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kwok, kubectl), as a link or as first argument, it is that
// component; called as devcluster it starts them together.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/drover-project/drover/tools/devcluster/internal/command"
	"github.com/drover-project/drover/tools/devcluster/internal/component"
	"github.com/drover-project/drover/tools/devcluster/internal/lifeline"
)

func main() {
	// Before anything else: from here on, the death of whoever started this
	// process ends it, even while a component is still setting itself up.
	if err := lifeline.Follow(); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
	os.Exit(run())
}

func run() int {
	if main, ok := component.Lookup(filepath.Base(os.Args[0])); ok {
		return main()
	}
	if len(os.Args) > 1 {
		if main, ok := component.Lookup(os.Args[1]); ok {
			os.Args = os.Args[1:]
			return main()
		}
	}
	if err := command.New().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		return 1
	}
	return 0
}
