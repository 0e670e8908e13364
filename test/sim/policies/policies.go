// SPDX-License-Identifier: Apache-2.0

// Package policies says what a ModulePolicy means, as its page in docs/guide has it.
package policies

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/sim/images"
)

// Same says whether policies have nothing new to allow: what is loaded and removed, from where,
// and with which parameters.
func Same(a, b *v1beta1.ModuleConfig) bool {
	return a.ContainerImage == b.ContainerImage && slices.Equal(a.InTreeModulesToRemove, b.InTreeModulesToRemove) &&
		slices.Equal(a.Modprobe.Parameters, b.Modprobe.Parameters)
}

// Governs says whether a policy applies on a node. Histories have one namespace.
func Governs(p *v1alpha1.ModulePolicySpec, n *corev1.Node) bool {
	if p.NodeSelector == nil {
		return true
	}
	for k, v := range p.NodeSelector.MatchLabels {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

// Permits says whether a policy allows what is to be loaded.
func Permits(p *v1alpha1.ModulePolicySpec, c *v1beta1.ModuleConfig) bool {
	if p.Load == v1alpha1.Deny || p.Images != nil && !fits(p.Images, c.ContainerImage) {
		return false
	}
	for _, module := range slices.Concat([]string{images.Module(c.ContainerImage)}, c.InTreeModulesToRemove) {
		if p.Modules != nil && !fits(p.Modules, module) {
			return false
		}
	}
	return p.Parameters == nil ||
		!slices.ContainsFunc(c.Modprobe.Parameters, func(parameter string) bool { return !fits(p.Parameters.Only, parameter) })
}

// fits says whether one of the patterns is the text, or a beginning of it that ends with *.
func fits(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return p == text || open && strings.HasPrefix(text, begin)
	})
}
