// SPDX-License-Identifier: Apache-2.0

// Command devcluster-build builds the embedded control plane below bin/ when it
// is out of date and prints the path: of the binary, of the folder that envtest
// takes as KUBEBUILDER_ASSETS (argument assets), or of the kubelet (kubelet).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	path, err := build(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster-build:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

func build(ctx context.Context, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return devcluster.Build(ctx)
	case len(args) == 1 && args[0] == "assets":
		return devcluster.Assets(ctx)
	case len(args) == 1 && args[0] == "kubelet":
		return devcluster.BuildKubelet(ctx)
	default:
		return "", fmt.Errorf("odd arguments %q: want none, assets or kubelet", args)
	}
}
