// SPDX-License-Identifier: Apache-2.0

package module

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/strikes"
)

// struck reports whether an order must not be given to a node because it took another one down. A node that has the
// order, or holds the very thing live, goes on as it is.
func (pl *planner) struck(order *v1beta1.NodeModuleSpec, v *view) bool {
	if _, held := pl.snap.verdict.Held[order.Delivery.ID]; !held {
		return false
	}
	if e := v.entry; e != nil {
		ordered := e.Delivery != nil && e.Delivery.ID == order.Delivery.ID
		return !ordered || e.State == v1beta1.NodeModuleAbsent && !v.observed()
	}
	return !v.observed() || !holds(v.config, order.Delivery.ID) || !equality.Semantic.DeepEqual(v.live.Config, &order.Config)
}

// excused is an order that tells the node's agent which strikes came from outside. What it was told stays, for the same
// delivery: it says what the strike of a node that comes back late belongs to.
func (pl *planner) excused(order *v1beta1.NodeModuleSpec, v *view) *v1beta1.NodeModuleSpec {
	var until *metav1.Time
	if e := v.entry; e != nil && e.Delivery != nil && e.Delivery.ID == order.Delivery.ID {
		until = e.Excused
	}
	if at, now := pl.snap.verdict.Excuse[v.name]; now && (until == nil || until.Time.Before(at)) {
		until = &metav1.Time{Time: at}
	}
	if until == nil {
		return order
	}
	told := *order
	told.Excused = until
	return &told
}

// struckBy are the strikes that a NodeModulesConfig reports.
func struckBy(object client.Object) []strikes.Strike {
	config, ok := object.(*v1beta1.NodeModulesConfig)
	if !ok {
		return nil
	}
	return strikes.Reported(config)
}
