// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/sources"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/hub/ocm"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/agentpod"
	"github.com/drover-project/drover/internal/operator/controller/claims"
	"github.com/drover-project/drover/internal/operator/controller/condition"
	"github.com/drover-project/drover/internal/operator/controller/guard"
	hubcontroller "github.com/drover-project/drover/internal/operator/controller/hub"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/controller/ooto"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/operator/controller/preflight"
	"github.com/drover-project/drover/internal/operator/controller/startup"
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
	guards := guard.New(live, closed, nil)
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
	return operator.Run(ctx, mgr, options, controllers(mgr, options, guards, closed, numbers))
}

// controllers are all that there are, by the names by which --controllers switches them.
func controllers(mgr ctrl.Manager, options *operator.Options, guards *guard.Controller, closed *gate.Gate,
	numbers *metrics.Board) map[string]operator.Controller {
	role := ""
	if options.Orders.CarrierUser == nil { // the cluster chooses users: OpenShift
		role = plugin.WorkloadRole
	}
	c, live := mgr.GetClient(), mgr.GetAPIReader()
	recorder := kube.NewRecorder(mgr.GetEventRecorder(operator.Name))
	all := map[string]operator.Controller{
		"module":   module.New(c, live, options.Module(recorder, closed, numbers)),
		"node":     node.New(c, node.Options{Makes: options.Makes(), Recorder: recorder, Metrics: numbers, Gate: closed}),
		"plugin":   plugin.New(c, live, plugin.Options{AgentImage: options.Orders.AgentImage, DRA: options.Orders.DRA, Role: role, Gate: closed}),
		"guard":    guards,
		"startup":  startup.New(c, options.StartupTaints, closed),
		"agentpod": agentpod.New(c, live, options.Namespace, closed, nil),
		"ooto":     ooto.New(c, live, ooto.Options{Gate: closed, Recorder: recorder}),
	}
	if options.NodeCondition {
		all["condition"] = condition.New(c, closed, nil)
	}
	if options.Mode == operator.ModeSpoke {
		all["claims"] = claims.New(c, live, options.Namespace)
		return all
	}
	all["preflight"] = operator.Optional(preflight.New(c, live, preflight.Options{
		BuildahImage: options.Build.BuildahImage, Makes: options.Makes(), Examines: options.Examines(), Gate: closed, Recorder: recorder,
		Count: numbers.SetPreflights,
	}), &v1beta2.PreflightValidationList{})
	if images := moduleimage.New(c, live, options.Images(closed)); options.Makes() {
		all["image"] = images
	} else if options.Examines() {
		all["image"] = operator.Optional(moduleimage.ImagesAlone{Controller: images}, &v1alpha1.ModuleImageList{})
	}
	return all
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
