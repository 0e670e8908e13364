// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
)

// takenAnnotation is on a DaemonSet that KMM made. While its value is the hash of what the Module
// asks for, the pods that KMM made are right and stay; empty: they no longer are.
const takenAnnotation = "drover.dev/taken-over"

// wish is the DaemonSet as the Module asks for it. One that KMM made keeps its name, its selector
// and, while the Module asks for the same, its pods.
func wish(module *v1beta1.Module, pods Pods, have []*appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	want, err := daemonSetOf(module, pods)
	if want == nil || err != nil {
		return nil, err
	}
	old := inherited(want, have, v1beta1.VersionScheduleLabel(module.Namespace, module.Name))
	if old == nil {
		return want, nil
	}
	asked := want.Annotations[kube.HashAnnotation]
	if before := waitImage(old); before != "" && before != pods.AgentImage {
		then, err := daemonSetOf(module, Pods{before, pods.Priority})
		if err != nil {
			return nil, err
		}
		asked = then.Annotations[kube.HashAnnotation]
	}
	takeOver(want, old, asked)
	return want, nil
}

// inherited is the DaemonSet of KMM that does what is wanted, or nil. One that Drover has made
// itself goes first.
func inherited(want *appsv1.DaemonSet, have []*appsv1.DaemonSet, version string) *appsv1.DaemonSet {
	var old *appsv1.DaemonSet
	for _, ds := range have {
		_, ours := ds.Annotations[kube.HashAnnotation]
		_, taken := ds.Annotations[takenAnnotation]
		switch {
		case ours && !taken && ds.Name == want.Name:
			return nil
		case ours && !taken, ds.DeletionTimestamp != nil, ds.Spec.Selector == nil,
			ds.Labels[v1beta1.RoleLabel] != want.Labels[v1beta1.RoleLabel], ds.Labels[version] != want.Labels[version]:
		case old == nil || ds.Name < old.Name:
			old = ds
		}
	}
	return old
}

// takeOver makes a wish one for KMM's DaemonSet. asked is the hash of what the Module asks for, but
// for the image of the waiting container.
func takeOver(want, old *appsv1.DaemonSet, asked string) {
	want.Name, want.Spec.Selector = old.Name, old.Spec.Selector.DeepCopy()
	maps.Copy(want.Spec.Template.Labels, old.Spec.Selector.MatchLabels)
	want.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	right, known := old.Annotations[takenAnnotation]
	want.Annotations[takenAnnotation] = ""
	if known && right == asked || !known && sameWork(old, want) {
		want.Annotations[takenAnnotation] = want.Annotations[kube.HashAnnotation]
		want.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	}
}

// work is what a container does.
type work struct {
	Name, Image        string
	Command, Args, Env []string
}

// sameWork reports whether two DaemonSets run the same programs of the user, in the same way.
func sameWork(a, b *appsv1.DaemonSet) bool {
	return equality.Semantic.DeepEqual(worksOf(&a.Spec.Template.Spec), worksOf(&b.Spec.Template.Spec))
}

func worksOf(pod *corev1.PodSpec) []work {
	var all []work
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Name == waitName {
			continue
		}
		w := work{Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args}
		for _, e := range c.Env {
			w.Env = append(w.Env, e.Name+"="+e.Value)
		}
		slices.SortFunc(w.Env, strings.Compare)
		all = append(all, w)
	}
	return all
}

// own makes all fields of a DaemonSet that others have written this controller's. An apply takes
// out only what its own manager has applied: KMM's finalizer for pods, and its choice of nodes,
// would stay.
func (c *Controller) own(ctx context.Context, daemonSet *appsv1.DaemonSet) error {
	now := &appsv1.DaemonSet{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(daemonSet), now); err != nil {
		return fmt.Errorf("get DaemonSet %s: %w", daemonSet.Name, err)
	}
	others := sets.New[string]()
	for _, f := range now.ManagedFields {
		if f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == "" {
			others.Insert(f.Manager)
		}
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(now, others, string(kube.OwnerPlugin))
	if err != nil {
		return fmt.Errorf("take over the fields of DaemonSet %s: %w", daemonSet.Name, err)
	}
	if patch == nil {
		return nil
	}
	if err := c.client.Patch(ctx, now, client.RawPatch(types.JSONPatchType, patch), kube.OwnerPlugin); err != nil {
		return fmt.Errorf("take over the fields of DaemonSet %s: %w", daemonSet.Name, err)
	}
	return nil
}
