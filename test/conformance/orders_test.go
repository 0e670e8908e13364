// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
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
	"27_version_labels": versionLabels,
	"28_kernel_with_a_plus": func(t *testing.T) {
		c := given(t, kernelPlus)
		c.create(func(m *v1beta1.Module) { mapping(m).Regexp, mapping(m).Literal = "", "6.1.0" })
		c.ordered(map[string]string{c.nodes[0]: c.image("1-6.1.0")})
	},
	"33_literal":    maps([]v1beta1.KernelMapping{{Literal: kernelDebian}}, 0, -1),
	"33_regexp":     maps([]v1beta1.KernelMapping{{Regexp: `\.fc31\.`}}, -1, 0),
	"33_first_wins": maps([]v1beta1.KernelMapping{{Regexp: "^6"}, {Regexp: ".+"}, {Literal: kernelDebian}}, 0, 1),
	"34_template":   templates,
	"34_open_variable": refused("unknown template variable",
		func(m *v1beta1.Module) { mapping(m).ContainerImage = "example.com/i:${KERNEL_XYZ" }),
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

// versionLabels drives an upgrade by the labels of the node, as somebody else's planner does.
func versionLabels(t *testing.T) {
	c := given(t, kernelDebian, kernelDebian)
	label := func(node, version string) {
		c.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{"kmm.node.kubernetes.io/version-module.%s.%s":%s}}}`, c.key.Namespace, c.key.Name,
			version))
	}
	version := func(v string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).Version, mapping(m).ContainerImage = v, c.image(v) }
	}
	c.create(version("1"))
	label(c.nodes[0], `"1"`)
	c.ordered(map[string]string{c.nodes[0]: c.image("1")}) // and no order without a label

	c.change(version("2"))
	label(c.nodes[1], `"2"`)
	c.ordered(map[string]string{c.nodes[0]: c.image("1"), c.nodes[1]: c.image("2")}) // untouched where the label is another

	label(c.nodes[0], `"2"`)
	c.ordered(map[string]string{c.nodes[0]: c.image("2"), c.nodes[1]: c.image("2")})
	c.eventually("it is loaded, and the node says which version", func(ctx context.Context) error {
		node, err := c.node(ctx, c.nodes[0])
		if got := node.Labels["kmm.node.kubernetes.io/"+c.key.Namespace+"."+c.key.Name+".version.ready"]; err == nil && got != "2" {
			err = fmt.Errorf("the version label is %q", got)
		}
		return errors.Join(err, c.kernelsSay(ctx, c.kernelModule,
			map[string]tally{c.nodes[0]: {Live: true, Loads: 2, Unloads: 1}, c.nodes[1]: once}))
	})

	label(c.nodes[1], "null")
	c.ordered(map[string]string{c.nodes[0]: c.image("2")})
	c.must(c.kernelsSay(t.Context(), c.kernelModule, map[string]tally{
		c.nodes[0]: {Live: true, Loads: 2, Unloads: 1}, c.nodes[1]: {Loads: 1, Unloads: 1},
	}))
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
