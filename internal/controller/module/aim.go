// SPDX-License-Identifier: Apache-2.0

package module

import (
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/placement"
	"github.com/drover-project/drover/internal/rollout"
)

// Reasons of orders to unload, as they stand in a NodeModulesConfig.
const (
	// ReasonDeleted: the Module is being deleted, or is gone.
	ReasonDeleted = "Deleted"
	// ReasonDeselected: the Module's selector no longer chooses the node.
	ReasonDeselected = "Deselected"
	// ReasonMappingLost: no kernel mapping matches the node's kernel any more.
	ReasonMappingLost = "MappingLost"
	// ReasonLoaderRemoved: the Module has no moduleLoader any more.
	ReasonLoaderRemoved = "LoaderRemoved"
	// ReasonVersionLabel: the node label that drives ordered upgrades has been taken off the node.
	ReasonVersionLabel = "VersionLabelRemoved"
)

// aim is what a Module wants of a node.
type aim struct {
	// order to follow; nil: none.
	order *v1beta1.NodeModuleSpec
	// image to pull for it, if not the one that it names.
	image string
	// leave is the reason why there is none.
	leave string
	// keep: change nothing, but for whether the entry is paused.
	keep bool
	// wishes of annotations.
	wishes placement.Wishes
	// stay is the entry that the node keeps until its turn comes; nil: the turn has come. The image is delivered ahead when it shall be.
	stay  *v1beta1.NodeModuleSpec
	ahead bool
}

// asked is the last request to try again; zero: there was none.
func (a *aim) asked() time.Time {
	if a.wishes.Retry == nil {
		return time.Time{}
	}
	return a.wishes.Retry.Time
}

// aim decides what the Module wants of a node.
func (pl *planner) aim(v *view) aim {
	m := pl.snap.module
	if v.node == nil {
		return aim{}
	}
	a := aim{wishes: placement.WishesFor(m, v.node)}
	switch {
	case a.wishes.Paused, m == nil && pl.survives(v):
		a.keep = true
		return a
	case m == nil || m.DeletionTimestamp != nil:
		a.leave = ReasonDeleted
		return a
	case m.Spec.ModuleLoader == nil:
		a.leave = ReasonLoaderRemoved
		return a
	case !placement.Wanted(m, v.node, v.follows()):
		a.leave, a.keep = ReasonDeselected, pl.waits(v)
		return a
	case rollout.Labelled(m):
		if version, ok := v.node.Labels[v1beta1.VersionWorkerLabel(m.Namespace, m.Name)]; !ok {
			a.leave = ReasonVersionLabel
			return a
		} else if version != m.Spec.ModuleLoader.Container.Version {
			a.keep = true
			return a
		}
	}
	wants := pl.wants(v)
	switch want := wants.State; {
	case wants.Err != nil:
		a.keep = true
	case want == nil:
		a.leave, a.keep = ReasonMappingLost, pl.waits(v)
	case pl.unmade(&wants, v):
		a.keep = true
	default:
		entry := pl.entry(want)
		a.order, a.image = pl.excused(dressed(entry, a.wishes), v), want.Pull
		a.keep = pl.struck(entry, v)
	}
	return a
}

// survives reports whether a kernel module stays that no Module is there for: what no order names, and what was ordered
// before the cluster had this definition of Modules, which took all of them along when it was deleted. Nobody wished either
// gone. Applying the Module claims it, and deleting the Module then unloads it.
func (pl *planner) survives(v *view) bool {
	if v.entry == nil {
		return v.live != nil
	}
	return v.entry.State != v1beta1.NodeModuleAbsent && v.config.CreationTimestamp.Before(&pl.snap.defined)
}
