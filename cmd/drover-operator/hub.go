// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/hub/ocm"
	"github.com/drover-project/drover/internal/operator"
	hubcontroller "github.com/drover-project/drover/internal/operator/controller/hub"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/kube"
)

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
