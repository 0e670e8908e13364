// SPDX-License-Identifier: Apache-2.0

// Command devcluster builds the embedded control plane's binary when it is missing or out of date,
// and links kubectl beside it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	assets, err := devcluster.Assets(ctx)
	if err != nil {
		return err
	}
	link := filepath.Join(filepath.Dir(assets), "kubectl")
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Symlink(filepath.Join("assets", "kubectl"), link); err != nil {
		return err
	}
	fmt.Println(assets)
	return nil
}
