// SPDX-License-Identifier: Apache-2.0

// Package controller has the list of the operator's controllers, and gives each what it needs.
package controller

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/operator/controller/agentpod"
	"github.com/drover-project/drover/internal/operator/controller/claims"
	"github.com/drover-project/drover/internal/operator/controller/condition"
	"github.com/drover-project/drover/internal/operator/controller/guard"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/controller/ooto"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/operator/controller/preflight"
	"github.com/drover-project/drover/internal/operator/controller/startup"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Shared is what the controllers of a process have in common.
type Shared struct {
	// Guard keeps Gate.
	Guard   *guard.Controller
	Gate    *gate.Gate
	Metrics *metrics.Board
}

// All are the controllers of an operator that is no hub, by the names by which --controllers
// switches them.
func All(mgr ctrl.Manager, o *operator.Options, s Shared) map[string]operator.Controller {
	role := ""
	if o.Orders.CarrierUser == nil { // the cluster chooses users: OpenShift
		role = plugin.WorkloadRole
	}
	c, live, now := mgr.GetClient(), mgr.GetAPIReader(), o.Time()
	recorder := kube.NewRecorder(mgr.GetEventRecorder(operator.Name))
	orders := o.Module(recorder, s.Gate, s.Metrics)
	orders.Seen = &rollout.Sightings{} // who gives orders and who tells of them have one clock for the soak time
	orders.Budget = budget.New(o.NodeBudget, now.Now())
	all := map[string]operator.Controller{
		"module": module.New(c, live, orders),
		"node": node.New(c, node.Options{
			Makes: o.Makes(), UnloadTaints: o.UnloadTaints, Recorder: recorder, Metrics: s.Metrics, Gate: s.Gate, Now: now.Now, Seen: orders.Seen,
			Budget: orders.Budget,
		}),
		"plugin":   plugin.New(c, live, plugin.Options{AgentImage: o.Orders.AgentImage, DRA: o.Orders.DRA, Role: role, Gate: s.Gate}),
		"guard":    s.Guard,
		"startup":  startup.New(c, o.StartupTaints, o.UnloadTaints, s.Gate),
		"agentpod": agentpod.New(c, live, o.Namespace, s.Gate, now),
		"ooto":     ooto.New(c, live, ooto.Options{Gate: s.Gate, Recorder: recorder, Clock: now}),
	}
	if o.NodeCondition {
		all["condition"] = condition.New(c, o.UnloadTaints, s.Gate, now.Now)
	}
	if o.Mode == operator.ModeSpoke {
		all["claims"] = claims.New(c, live, o.Namespace)
		return all
	}
	all["preflight"] = operator.Optional(preflight.New(c, live, preflight.Options{
		BuildahImage: o.Build.BuildahImage, Makes: o.Makes(), Examines: o.Examines(), Gate: s.Gate, Recorder: recorder,
		Count: s.Metrics.SetPreflights, Clock: now,
	}), &v1beta2.PreflightValidationList{})
	if images := moduleimage.New(c, live, o.Images(s.Gate)); o.Makes() {
		all["image"] = images
	} else if o.Examines() {
		all["image"] = operator.Optional(moduleimage.ImagesAlone{Controller: images}, &v1alpha1.ModuleImageList{})
	}
	return all
}
