// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// orders are the cases about what nodes are told.
var orders = map[string]func(*testing.T){
	"21_entry_labels_and_owner": entryLabelsAndOwner,
	"22_service_account_default": func(t *testing.T) {
		c := given(t, kernelDebian)
		c.create()
		c.loaded()
		entry, err := c.order(t.Context(), c.nodes[0])
		c.must(err)
		if entry.ServiceAccountName != "default" {
			t.Errorf("the order's ServiceAccount is %q", entry.ServiceAccountName)
		}
	},
	"28_kernel_with_a_plus": func(t *testing.T) {
		c := given(t, kernelPlus)
		c.create(func(m *v1beta1.Module) { mapping(m).Regexp, mapping(m).Literal = "", "6.1.0" })
		c.ordered(map[string]string{c.nodes[0]: c.image("1-6.1.0")})
	},
	"33_literal":       maps([]v1beta1.KernelMapping{{Literal: kernelDebian}}, 0, -1),
	"33_regexp":        maps([]v1beta1.KernelMapping{{Regexp: `\.fc31\.`}}, -1, 0),
	"33_first_wins":    firstMappingWins,
	"34_template":      templates,
	"34_open_variable": refused("unknown template variable", func(m *v1beta1.Module) { mapping(m).ContainerImage = "example.com/i:${KERNEL_XYZ" }),
}

func entryLabelsAndOwner(t *testing.T) {
	c := given(t, kernelDebian)
	c.create()
	c.loaded()
	node, err := c.node(t.Context(), c.nodes[0])
	c.must(err)
	config, err := c.config(t.Context(), node.Name)
	c.must(err)
	entry, err := c.order(t.Context(), node.Name)
	c.must(err)
	if entry.Config.ContainerImage != c.image("1-"+kernelDebian) || entry.Config.KernelVersion != kernelDebian ||
		entry.Config.Modprobe.ModuleName != c.kernelModule || entry.Config.Modprobe.DirName != "/opt" {
		t.Errorf("the entry is %+v", entry.Config)
	}
	want := map[string]string{}
	for _, suffix := range []string{"module-configured", "module-in-use"} {
		want["beta.kmm.node.kubernetes.io/"+c.key.Namespace+"."+c.key.Name+"."+suffix] = ""
	}
	if diff := cmp.Diff(want, config.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	if diff := cmp.Diff([]metav1.OwnerReference{owner}, config.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// firstMappingWins can be broken, to show that it can fail.
func firstMappingWins(t *testing.T) {
	mappings := []v1beta1.KernelMapping{{Regexp: "^6"}, {Regexp: ".+"}, {Literal: kernelDebian}}
	if os.Getenv("BREAK") == "order" {
		slices.Reverse(mappings)
	}
	maps(mappings, 0, 1)(t)
}

// maps says which of the mappings the kernels of Debian and Fedora shall get; -1 is none.
func maps(mappings []v1beta1.KernelMapping, debian, fedora int) func(*testing.T) {
	return func(t *testing.T) {
		c := given(t, kernelDebian, kernelFedora)
		for i := range mappings {
			mappings[i].ContainerImage = c.image(fmt.Sprint(i))
		}
		want := map[string]string{}
		for i, mapped := range []int{debian, fedora} {
			if mapped >= 0 {
				want[c.nodes[i]] = c.image(fmt.Sprint(mapped))
			}
		}
		c.create(func(m *v1beta1.Module) { container(m).KernelMappings = mappings })
		c.ordered(want)
		if len(want) < len(c.nodes) {
			c.eventually("the kernel without a mapping is named", func(ctx context.Context) error {
				return c.says(ctx, v1beta1.ConditionKernelsCovered, metav1.ConditionFalse, v1beta1.ReasonNoKernelMapping)
			})
		}
	}
}

// ordered waits until these nodes, and no others of the corner, are to load these images.
func (c *corner) ordered(want map[string]string) {
	c.Helper()
	c.eventually("the nodes have their orders", func(ctx context.Context) error {
		got := map[string]string{}
		for _, node := range c.nodes {
			if entry, err := c.order(ctx, node); err == nil {
				got[node] = entry.Config.ContainerImage
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("images (-want +got):\n%s", diff)
		}
		return nil
	})
}

func templates(t *testing.T) {
	c := given(t, kernelFedora)
	c.create(func(m *v1beta1.Module) {
		mapping(m).ContainerImage = registry + "/$MOD_NAMESPACE/${MOD_NAME}:" +
			"$KERNEL_XYZ-${KERNEL_X}-${KERNEL_Y}-$KERNEL_Z-${KERNEL_FULL_VERSION}-$KERNEL_VERSION"
	})
	c.ordered(map[string]string{c.nodes[0]: c.image("5.8.18-5-8-18-" + kernelFedora + "-" + kernelFedora)})
}
