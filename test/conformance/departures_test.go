// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// departures are the cases about what leaves, and what must not.
var departures = map[string]func(*testing.T){
	"19_finalizer_and_namespace": finalizerAndNamespace,
	"25_taints_never_unload":     taintsNeverUnload,
	"30_module_loader_removed":   moduleLoaderRemoved,
	"55_no_order_is_no_unload":   noOrderIsNoUnload,
	"60_deprecated_label":        deprecatedLabel,
	"62_config_deleted":          configDeleted,
}

func finalizerAndNamespace(t *testing.T) {
	c := given(t, kernelDebian)
	c.create()
	c.loaded()
	m, err := c.read(t.Context())
	c.must(err)
	if !controllerutil.ContainsFinalizer(m, v1beta1.ModuleFinalizer) {
		t.Errorf("finalizers are %v", m.Finalizers)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.key.Namespace}}
	if err := shared.Admin.Delete(t.Context(), namespace); !apierrors.IsForbidden(err) {
		t.Errorf("the answer to deleting the namespace is %v", err)
	}
	c.must(shared.Admin.Delete(t.Context(), m))
	c.eventually("the Module is gone", c.gone)
	c.eventually("the namespace can go", func(ctx context.Context) error { return shared.Admin.Delete(ctx, namespace) })
}

func taintsNeverUnload(t *testing.T) {
	c := given(t, kernelDebian, kernelDebian)
	c.create(func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{DeselectGracePeriod: &metav1.Duration{Duration: time.Millisecond}}
	})
	c.loaded()
	c.patchNode(c.nodes[0], `{"spec":{"taints":[{"key":"example.com/keep-out","effect":"NoExecute"}],"unschedulable":true}}`)

	// The other node is deselected after that; when it is done, the taint has long been seen.
	c.must(shared.Debug(t.Context(), "/hold?node="+c.nodes[1]+"&module="+c.kernelModule))
	c.patchNode(c.nodes[1], fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, c.selector()))
	c.eventually("the deselected node is ordered to unload", func(ctx context.Context) error {
		entry, err := c.order(ctx, c.nodes[1])
		if err == nil && entry.State != v1beta1.NodeModuleAbsent {
			err = fmt.Errorf("the entry is %+v", entry)
		}
		return err
	})
	config, err := c.config(t.Context(), c.nodes[1])
	c.must(err)
	if diff := cmp.Diff(map[string]string{v1beta1.InUseLabel(c.key.Namespace, c.key.Name): ""}, config.Labels); diff != "" {
		t.Errorf("labels of the NodeModulesConfig that is to lose its entry (-want +got):\n%s", diff)
	}
	c.must(shared.Debug(t.Context(), "/unhold?node="+c.nodes[1]+"&module="+c.kernelModule))
	c.eventually("the deselected node has nothing any more", func(ctx context.Context) error {
		_, err := c.config(ctx, c.nodes[1])
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("there still is a NodeModulesConfig (%w)", err)
		}
		return c.kernelsSay(ctx, c.kernelModule, map[string]tally{c.nodes[0]: once, c.nodes[1]: {Loads: 1, Unloads: 1}})
	})
	c.eventually("the Module is ready on the tainted node", c.ready)
}

func moduleLoaderRemoved(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{DeselectGracePeriod: &metav1.Duration{Duration: time.Millisecond}}
	})
	c.loaded()
	c.change(func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil })
	c.eventually("nothing is loaded or counted", func(ctx context.Context) error {
		m, err := c.read(ctx)
		if err == nil && m.Status.ModuleLoader != (v1beta1.DaemonSetStatus{}) {
			err = fmt.Errorf("status.moduleLoader is %+v", m.Status.ModuleLoader)
		}
		if _, missing := c.config(ctx, c.nodes[0]); !apierrors.IsNotFound(missing) {
			err = errors.Join(err, fmt.Errorf("there still is a NodeModulesConfig (%w)", missing))
		}
		return errors.Join(err, c.kernels(ctx, tally{Loads: 1, Unloads: 1}))
	})
}

func noOrderIsNoUnload(t *testing.T) {
	c := given(t, kernelDebian)
	c.create()
	c.loaded()
	config := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: c.nodes[0]}}
	c.must(shared.Admin.Patch(t.Context(), config, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"modules":null}}`))))
	c.eventually("the order is back", func(ctx context.Context) error {
		_, err := c.order(ctx, c.nodes[0])
		return errors.Join(err, c.ready(ctx))
	})
	c.must(c.kernels(t.Context(), once))

	c.must(shared.Admin.Delete(t.Context(), c.module()))
	c.eventually("the Module is gone", c.gone)
	c.must(c.kernels(t.Context(), tally{Loads: 1, Unloads: 1}))
}

func deprecatedLabel(t *testing.T) {
	c := given(t, kernelDebian)
	c.create()
	c.loaded()
	label := "kmm.node.kubernetes.io/" + c.key.Name + ".ready"
	c.patchNode(c.nodes[0], fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, label))
	c.eventually("the old label is gone and the new one stays", func(ctx context.Context) error {
		node, err := c.node(ctx, c.nodes[0])
		if err != nil {
			return err
		}
		_, old := node.Labels[label]
		if _, ready := node.Labels[v1beta1.ReadyLabel(c.key.Namespace, c.key.Name)]; old || !ready {
			err = fmt.Errorf("the labels are %v", node.Labels)
		}
		return err
	})
}

func configDeleted(t *testing.T) {
	c := given(t, kernelDebian)
	c.create()
	c.loaded()
	before, err := c.config(t.Context(), c.nodes[0])
	c.must(err)
	c.must(shared.Admin.Delete(t.Context(), before))
	c.eventually("another NodeModulesConfig has the order, and the node says what it holds", func(ctx context.Context) error {
		config, err := c.config(ctx, c.nodes[0])
		if err == nil && config.UID == before.UID {
			err = errors.New("it is the one that was deleted")
		}
		_, noOrder := c.order(ctx, c.nodes[0])
		_, notLive := c.live(ctx, c.nodes[0])
		pods, listErr := c.carriers(ctx)
		if len(pods) > 0 {
			listErr = fmt.Errorf("carrier %s is there", pods[0].Name)
		}
		return errors.Join(err, noOrder, notLive, listErr, c.ready(ctx))
	})
	c.must(c.kernels(t.Context(), once))

	c.must(shared.Admin.Delete(t.Context(), c.module()))
	c.eventually("nothing keeps the Module", c.gone)
}
