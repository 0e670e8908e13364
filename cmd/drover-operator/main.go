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
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-project/drover/internal/controller/guard"
	"github.com/drover-project/drover/internal/controller/module"
	"github.com/drover-project/drover/internal/controller/moduleimage"
	"github.com/drover-project/drover/internal/controller/node"
	"github.com/drover-project/drover/internal/controller/plugin"
	"github.com/drover-project/drover/internal/controller/startup"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/gate"
	"github.com/drover-project/drover/internal/kube"
	"github.com/drover-project/drover/internal/metrics"
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
	if options.DRA, err = operator.ServesDRA(mgr.GetRESTMapper()); err != nil {
		return err
	}
	role := ""
	if options.CarrierUser == nil { // the cluster chooses users: OpenShift
		role = plugin.WorkloadRole
	}
	c, live := mgr.GetClient(), mgr.GetAPIReader()
	closed := &gate.Gate{}
	guards := guard.New(live, closed, nil)
	if err := guards.Check(ctx); err != nil {
		return fmt.Errorf("before the start: %w", err)
	}
	recorder, numbers := kube.NewRecorder(mgr.GetEventRecorder(operator.Name)), metrics.NewBoard()
	ctrlmetrics.Registry.MustRegister(numbers)
	deliveries, plugins := &delivery.Board{}, &delivery.Board{}
	var made *delivery.Board
	if options.Makes() {
		made = &delivery.Board{}
	}
	controllers := map[string]operator.Controller{
		"module": module.New(c, live, deliveries, options.Module(recorder, closed)),
		"node": node.New(c, node.Options{
			Deliveries: deliveries, Plugins: plugins, Images: made, Recorder: recorder, Metrics: numbers, Gate: closed,
		}),
		"plugin":  plugin.New(c, live, plugin.Options{AgentImage: options.AgentImage, Problems: plugins, DRA: options.DRA, Role: role, Gate: closed}),
		"guard":   guards,
		"startup": startup.New(c, closed),
	}
	if made != nil {
		controllers["image"] = moduleimage.New(c, live, options.Images(made, closed))
	}
	return operator.Run(ctx, mgr, options, controllers)
}
