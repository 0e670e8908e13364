// SPDX-License-Identifier: Apache-2.0

// Command drover-operator runs Drover's cluster-side controllers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-project/drover/internal/operator"
)

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, operator.Name+":", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	options, err := operator.ParseFlags(args)
	if err != nil {
		return err
	}
	klog.SetLogger(options.Log)
	ctrl.SetLogger(options.Log)
	for _, note := range options.Notes {
		options.Log.Info(note)
	}
	if _, err := operator.LimitMemory(os.Getenv); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	mgr, err := operator.NewManager(config, options)
	if err != nil {
		return err
	}
	if options.CarrierUser, err = operator.CarrierUser(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if options.Mode == operator.ModeHub {
		return startHub(ctx, mgr, options)
	}
	return start(ctx, mgr, options)
}
