// SPDX-License-Identifier: Apache-2.0

// Command drover-operator runs Drover's cluster-side controllers.
package main

import (
	"context"
	"os"

	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/shared/kube/process"
)

func main() {
	process.Main(operator.Name, run)
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case releaseCommand:
			return releaseAll(ctx, args[1:])
		case examineCommand:
			return examineImage(ctx, args[1:])
		}
	}
	options, err := operator.ParseFlags(args)
	if err != nil {
		return err
	}
	for _, note := range options.Notes {
		options.Log.Info(note)
	}
	if _, err := operator.LimitMemory(os.Getenv); err != nil {
		return err
	}
	config, err := process.Cluster(options.Log)
	if err != nil {
		return err
	}
	if options.Traces, err = options.Tracing.Start(ctx, options.Called()); err != nil {
		return err
	}
	defer options.Traces.Stop()
	mgr, err := operator.NewManager(config, options)
	if err != nil {
		return err
	}
	if options.Orders.CarrierUser, err = operator.CarrierUser(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if options.Mode == operator.ModeHub {
		return startHub(ctx, mgr, options)
	}
	return start(ctx, mgr, options)
}
