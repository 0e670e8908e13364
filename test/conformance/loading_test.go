// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// loading are the cases about what nodes do and say.
var loading = map[string]func(*testing.T){
	"52_order_without_status_loads": func(t *testing.T) {
		c := given(t, kernelDebian)
		c.create()
		c.loaded()
	},
	"53_changed_order_reloads": func(t *testing.T) {
		c := given(t, kernelDebian)
		c.create()
		c.loaded()
		c.change(func(m *v1beta1.Module) { modprobeOf(m).Parameters = []string{"mode=fast"} })
		c.eventually("it is loaded anew", func(ctx context.Context) error {
			return errors.Join(c.ready(ctx), c.kernels(ctx, tally{Live: true, Loads: 2, Unloads: 1}))
		})
	},
	"53_another_kernel_loads": func(t *testing.T) {
		c := given(t, kernelDebian)
		c.create()
		c.loaded()
		c.must(shared.Debug(t.Context(), "/reboot?node="+c.nodes[0]+"&kernel="+kernelFedora))
		c.ordered(map[string]string{c.nodes[0]: c.image("1-" + kernelFedora)})
		c.eventually("it is loaded for the other kernel", func(ctx context.Context) error {
			return errors.Join(c.ready(ctx), c.kernels(ctx, tally{Live: true, Loads: 2}))
		})
	},
	"57_status_says_what_was_loaded": statusSaysWhatWasLoaded,
	"83_replaces_and_loads_a_chain":  replacesAndLoadsAChain,
}

// replacesAndLoadsAChain removes what the host had, loads a module and what it needs, and unloads
// both with the Module.
func replacesAndLoadsAChain(t *testing.T) {
	c := given(t, kernelDebian)
	node, host, dependency := c.nodes[0], c.kernelModule+"_host", c.kernelModule+"_dep"
	c.must(shared.Debug(t.Context(), "/insmod?node="+node+"&module="+host))
	c.create(func(m *v1beta1.Module) {
		container(m).InTreeModulesToRemove = []string{host}
		modprobeOf(m).ModulesLoadingOrder = []string{c.kernelModule, dependency}
	})
	c.loaded()
	c.must(c.kernelsSay(t.Context(), dependency, map[string]tally{node: once}))
	c.must(c.kernelsSay(t.Context(), host, map[string]tally{node: {Unloads: 1}}))

	c.must(shared.Admin.Delete(t.Context(), c.module()))

	c.eventually("all of it is gone", c.gone)
	for _, module := range []string{c.kernelModule, dependency} {
		c.must(c.kernelsSay(t.Context(), module, map[string]tally{node: {Loads: 1, Unloads: 1}}))
	}
}

func statusSaysWhatWasLoaded(t *testing.T) {
	c := given(t, kernelDebian)
	tolerations := []corev1.Toleration{{Key: "example.com/nic", Operator: corev1.TolerationOpExists}}
	c.must(shared.Admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: "puller"}}))
	c.create(func(m *v1beta1.Module) {
		m.Spec.Tolerations = tolerations
		m.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: "registry"}
		m.Spec.ModuleLoader.ServiceAccountName = "puller"
		modprobeOf(m).Parameters = []string{"mode=fast"}
	})
	c.loaded()
	node, err := c.node(t.Context(), c.nodes[0])
	c.must(err)
	entry, err := c.order(t.Context(), node.Name)
	c.must(err)
	got, err := c.live(t.Context(), node.Name)
	c.must(err)
	want := &v1beta1.NodeModuleStatus{
		ModuleItem: v1beta1.ModuleItem{
			Namespace: c.key.Namespace, Name: c.key.Name, ServiceAccountName: "puller",
			ImageRepoSecret: &corev1.LocalObjectReference{Name: "registry"}, Tolerations: tolerations,
		},
		Config: &entry.Config, BootID: node.Status.NodeInfo.BootID,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(v1beta1.NodeModuleStatus{}, "LastTransitionTime", "Observed")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got.Config.ContainerImage != c.image("1-"+kernelDebian) || got.Config.KernelVersion != kernelDebian ||
		!cmp.Equal(got.Config.Modprobe.Parameters, []string{"mode=fast"}) {
		t.Errorf("loaded was %+v", got.Config)
	}
}
