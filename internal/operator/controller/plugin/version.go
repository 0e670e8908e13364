// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// versionLabels select, where node labels drive a Module's upgrades, the nodes for the plugin of
// its version, and distinguish the DaemonSets of its versions; otherwise empty.
func versionLabels(module *v1beta1.Module) map[string]string {
	if !rollout.Labelled(module) {
		return nil
	}
	return map[string]string{v1beta1.VersionScheduleLabel(module.Namespace, module.Name): module.Spec.ModuleLoader.Container.Version}
}

// versioned gives each version its own DaemonSet where node labels drive upgrades, so that nodes
// keep the plugin that fits their kernel module until their label changes.
func versioned(ds *appsv1.DaemonSet, module *v1beta1.Module, role string) {
	labels := versionLabels(module)
	if len(labels) == 0 {
		return
	}
	ds.Name = Name(module.Name+"-"+kube.Digest(module.Spec.ModuleLoader.Container.Version, hashDigits), role)
	for _, of := range []map[string]string{ds.Labels, ds.Spec.Selector.MatchLabels, ds.Spec.Template.Labels} {
		maps.Copy(of, labels)
	}
}

// serves reports whether a DaemonSet of another version still has nodes.
func serves(ds *appsv1.DaemonSet, module *v1beta1.Module) bool {
	_, version := ds.Labels[v1beta1.VersionScheduleLabel(module.Namespace, module.Name)]
	return rollout.Labelled(module) && version && !vacated(ds)
}

func vacated(ds *appsv1.DaemonSet) bool {
	return ds.Status.ObservedGeneration >= ds.Generation && ds.Status.DesiredNumberScheduled == 0
}

// setChanged also lets through that a DaemonSet has lost its last node.
func setChanged(before, now *appsv1.DaemonSet) bool {
	return specChanged(before, now) || vacated(before) != vacated(now)
}
