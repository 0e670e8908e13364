// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-project/drover/internal/build/sources"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/hub/ocm"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller"
	"github.com/drover-project/drover/internal/operator/controller/guard"
	hubcontroller "github.com/drover-project/drover/internal/operator/controller/hub"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/devicetaint"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/kube"
)

// start makes the controllers, which is the graph of what depends on what, and runs them.
func start(ctx context.Context, mgr ctrl.Manager, options *operator.Options) error {
	closed := &gate.Gate{}
	// The manager's client would begin to watch what it creates, and reviews cannot be watched.
	live, err := client.New(mgr.GetConfig(),
		client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client without a cache: %w", err)
	}
	kind, err := devicetaint.Kind(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	if kind != nil && options.Orders.DRA {
		options.Orders.Taints = devicetaint.New(live, *kind)
	}
	guards := guard.New(live, closed, options.Time())
	if _, err := guards.Check(ctx); err != nil {
		return fmt.Errorf("before the start: %w", err)
	}
	if options.Makes() {
		if err := sources.Check(ctx, live); err != nil {
			return fmt.Errorf("before the start: %w", err)
		}
	}
	numbers := metrics.NewBoard()
	ctrlmetrics.Registry.MustRegister(numbers)
	return operator.Run(ctx, mgr, options, controller.All(mgr, options, controller.Shared{Guard: guards, Gate: closed, Metrics: numbers}))
}

// startHub makes the controllers of a hub and runs them. A cluster that both transports reach is
// the one's that comes first.
func startHub(ctx context.Context, mgr ctrl.Manager, options *operator.Options) error {
	c, live, open := mgr.GetClient(), mgr.GetAPIReader(), &gate.Gate{}
	self, err := hubcontroller.Identity(ctx, live)
	if err != nil {
		return err
	}
	all := map[string]operator.Controller{
		"hub": hubcontroller.New(c, live, hubcontroller.Options{
			Namespace: options.Namespace, Hub: self, BuildahImage: options.Build.BuildahImage, Gate: open,
			Recorder:   kube.NewRecorder(mgr.GetEventRecorder(operator.HubName)),
			Transports: []hub.Transport{ocm.New(c, mgr.GetCache(), self), direct.New(c, mgr.GetCache(), options.Namespace, self)},
		}),
	}
	if options.Makes() {
		all["image"] = moduleimage.ImagesAlone{Controller: moduleimage.New(c, live, options.Images(open))}
	}
	return operator.Run(ctx, mgr, options, all)
}
