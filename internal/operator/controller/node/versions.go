// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// versionLabels are the labels that answer the one by which somebody drives a Module's upgrades on
// a node, after the next step. The steps are upstream's, one at a time: where the user's label is
// not what the node has, first the device plugin's label goes, then, without plugin pods, the
// order's; once the kernel module is gone, the order's comes with the new value, then the plugin's.
func versionLabels(have map[string]string, busy func(module types.NamespacedName) bool) map[string]string {
	want := map[string]string{}
	for module := range versioned(have) {
		user, asked := have[v1beta1.VersionModulePrefix+module.Namespace+"."+module.Name]
		workerLabel, scheduleLabel := v1beta1.VersionWorkerLabel(module.Namespace, module.Name),
			v1beta1.VersionScheduleLabel(module.Namespace, module.Name)
		worker, ordered := have[workerLabel]
		schedule, scheduled := have[scheduleLabel]
		_, ready := have[v1beta1.ReadyLabel(module.Namespace, module.Name)]
		right := asked && ordered && worker == user
		switch {
		case scheduled && (!right || schedule != user):
			scheduled = false
		case right:
			schedule, scheduled = user, true
		case ordered && !busy(module):
			ordered = false
		case !ordered && asked && !ready:
			worker, ordered = user, true
		}
		if ordered {
			want[workerLabel] = worker
		}
		if scheduled {
			want[scheduleLabel] = schedule
		}
	}
	return want
}

// versioned are the Modules that version labels on a node speak of.
func versioned(labels map[string]string) map[types.NamespacedName]bool {
	modules := map[types.NamespacedName]bool{}
	for label := range labels {
		for _, prefix := range []string{v1beta1.VersionModulePrefix, v1beta1.VersionWorkerPrefix, v1beta1.VersionSchedulePrefix} {
			if of, ok := strings.CutPrefix(label, prefix); ok {
				if namespace, name, ok := strings.Cut(of, "."); ok { // a namespace has no dots
					modules[types.NamespacedName{Namespace: namespace, Name: name}] = true
				}
			}
		}
	}
	return modules
}

// keptVersion is true for the labels that answer the user's.
func keptVersion(label string) bool {
	return strings.HasPrefix(label, v1beta1.VersionWorkerPrefix) || strings.HasPrefix(label, v1beta1.VersionSchedulePrefix)
}

// sameVersions is true when two label sets agree in what users say of versions.
func sameVersions(a, b map[string]string) bool {
	for _, pair := range [][2]map[string]string{{a, b}, {b, a}} {
		for label, value := range pair[0] {
			if strings.HasPrefix(label, v1beta1.VersionModulePrefix) {
				if other, ok := pair[1][label]; !ok || other != value {
					return false
				}
			}
		}
	}
	return true
}
