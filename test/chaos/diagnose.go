// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/placement"
)

// diagnose says why nothing goes on: what the Module says of itself, and what the nodes that are
// behind have in common.
func (s *scene) diagnose(ctx context.Context) {
	s.say("operator running: %t, hollow nodes running: %t", s.f.Operator.Running(), s.f.Hollow.Running())
	m := &v1beta1.Module{}
	if err := s.f.Admin.Get(ctx, key, m); err != nil {
		s.say("the Module: %v", err)
	}
	for _, c := range m.Status.Conditions {
		s.say("%s=%s %s: %.300s", c.Type, c.Status, c.Reason, c.Message)
	}
	var configs v1beta1.NodeModulesConfigList
	var nodes corev1.NodeList
	if err := s.f.Admin.List(ctx, &configs); err != nil {
		s.say("the NodeModulesConfigs: %v", err)
	}
	if err := s.f.Admin.List(ctx, &nodes); err != nil {
		s.say("the nodes: %v", err)
	}
	kinds := map[string][]string{}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; !placement.Ready(n) {
			kinds["not Ready"] = append(kinds["not Ready"], n.Name)
		}
	}
	for i := range configs.Items {
		c := &configs.Items[i]
		kinds[kind(c)] = append(kinds[kind(c)], c.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		s.say("%d nodes, %s among them: %s", len(kinds[k]), kinds[k][0], k)
	}
}

// kind is what a NodeModulesConfig has in common with others.
func kind(c *v1beta1.NodeModulesConfig) string {
	tag := func(image string) string {
		_, after, _ := strings.Cut(image, "/chaos/")
		return strings.SplitN(after, "-", 2)[0]
	}
	var parts []string
	for i := range c.Spec.Modules {
		o := &c.Spec.Modules[i]
		parts = append(parts, fmt.Sprintf("ordered %s %s next=%t", tag(o.Config.ContainerImage), o.State, o.Next != nil))
	}
	for i := range c.Status.Modules {
		parts = append(parts, "live "+tag(ptr.Deref(c.Status.Modules[i].Config, v1beta1.ModuleConfig{}).ContainerImage))
	}
	for i := range c.Status.Attempts {
		a := &c.Status.Attempts[i]
		parts = append(parts, fmt.Sprintf("attempt %s %s", a.State, a.Reason))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d artifacts", len(c.Status.Artifacts))), ", ")
}
