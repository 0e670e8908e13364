// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/testkit/env"
)

// way is how a hub reaches a cluster, as a test plays it.
type way struct {
	// join joins a cluster that the world's ManagedClusterModules select.
	join func(w *world) (cluster string)
	// brought is what the cluster was brought; nil: nothing.
	brought func(ctx context.Context, w *world, cluster string) (*v1beta1.Module, error)
	// answer has the cluster say that it is Ready with that.
	answer func(w *world, cluster string)
	// label puts the cluster into a world, by which it is selected.
	label func(w *world, cluster, world string)
}

var ways = map[string]way{
	"manifestwork": {
		join: func(w *world) string { return w.cluster("a", kernel) },
		brought: func(_ context.Context, w *world, cluster string) (*v1beta1.Module, error) {
			if work := w.work(cluster); work != nil {
				return hub.ModuleOf(work), nil
			}
			return nil, nil
		},
		answer: func(w *world, cluster string) { w.answer(cluster, metav1.ConditionTrue, v1beta1.ReasonReady, "") },
		label: func(w *world, cluster, world string) {
			w.relabel(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, world)
		},
	},
	"direct": {
		join: func(w *world) string {
			_, watch := w.directly()
			watch()
			return w.secret(w.name+"-metal", false).Name
		},
		brought: func(ctx context.Context, w *world, _ string) (*v1beta1.Module, error) {
			m := &v1beta1.Module{}
			err := w.admin.Get(ctx, types.NamespacedName{Namespace: w.name, Name: w.name}, m)
			if err != nil {
				return nil, client.IgnoreNotFound(err)
			}
			return m, nil
		},
		answer: func(w *world, _ string) {
			m := &v1beta1.Module{}
			w.must(w.admin.Get(w.Context(), types.NamespacedName{Namespace: w.name, Name: w.name}, m))
			m.Status.ObservedGeneration = m.Generation
			meta.SetStatusCondition(&m.Status.Conditions,
				metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady})
			w.must(w.admin.Status().Update(w.Context(), m))
		},
		label: func(w *world, cluster, world string) {
			w.relabel(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: cluster}}, world)
		},
	},
}

// relabel puts what stands for a cluster into a world.
func (w *world) relabel(o client.Object, world string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"world":%q}}}`, world)
	w.must(w.admin.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// TestBothTransportsDoTheSame, from a cluster's first Module to its last.
func TestBothTransportsDoTheSame(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cluster := by.join(w)
			m := w.prebuilt()
			has := func(parameters ...string) func(context.Context, *hubv1beta1.ManagedClusterModule) error {
				return func(ctx context.Context, _ *hubv1beta1.ManagedClusterModule) error {
					module, err := by.brought(ctx, w, cluster)
					if err == nil && (module == nil || !slices.Equal(module.Spec.ModuleLoader.Container.Modprobe.Parameters, parameters)) {
						err = fmt.Errorf("it has %+v", module)
					}
					return err
				}
			}
			hasNothing := func(ctx context.Context, _ *hubv1beta1.ManagedClusterModule) error {
				module, err := by.brought(ctx, w, cluster)
				if err == nil && module != nil {
					err = errors.New("it has the Module")
				}
				return err
			}
			w.eventually(m.Name, "the cluster has its Module", has())
			w.eventually(m.Name, "the hub waits for its answer", w.says(v1beta1.ReasonAwaitingDelivery, "cluster "+cluster+": sent"))
			by.answer(w, cluster)
			w.eventually(m.Name, "the hub has its answer", w.says(v1beta1.ReasonReady, "on 1 cluster"))

			w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), m))
			m.Spec.ModuleSpec.ModuleLoader.Container.Modprobe.Parameters = []string{"debug=1"}
			w.must(w.admin.Update(t.Context(), m))
			w.eventually(m.Name, "the cluster has what has changed", has("debug=1"))
			w.eventually(m.Name, "an answer about what was before is none", w.says(v1beta1.ReasonAwaitingDelivery, "cluster "+cluster+": sent"))
			by.answer(w, cluster)
			w.eventually(m.Name, "the hub has its new answer", w.says(v1beta1.ReasonReady, "on 1 cluster"))

			by.label(w, cluster, "another")
			w.eventually(m.Name, "a deselected cluster has nothing", hasNothing)
			w.eventually(m.Name, "the hub counts it no more", w.says(v1beta1.ReasonNoNodes, "no cluster is selected"))
			by.label(w, cluster, w.name)
			w.eventually(m.Name, "a cluster that is selected again has it again", has("debug=1"))

			w.must(w.admin.Delete(t.Context(), m))
			w.eventually(m.Name, "it is gone", func(_ context.Context, m *hubv1beta1.ManagedClusterModule) error {
				if m.Name != "" {
					return fmt.Errorf("it says %+v", m.Status)
				}
				return nil
			})
			w.eventually(m.Name, "nothing is left", hasNothing)
		})
	}
}
