// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// remarks are what only agents of this version tell, by Module, and the nodes where there is cause.
var remarks = map[string]struct {
	reason string
	nodes  []int
}{
	lacking: {v1beta1.ReasonParametersDiffer, everywhere},
	sharing: {v1beta1.ReasonDependencyKept, []int{hosts}},
}

// reasons: what only this version's agents tell reaches people through an operator that does not
// know the reason. Older agents say nothing, and the Module is ready.
func (s *scene) reasons(ctx context.Context, d *direction) error {
	if !d.newerAgents {
		return s.until(ctx, "older agents remark on nothing", s.ready(d, []string{lacking, sharing}))
	}
	return s.until(ctx, "what newer agents remark is told", s.told(d, lacking), s.told(d, sharing))
}

// told: the nodes where there is cause give a Module's remark, and no others, and the Module has it
// among its conditions, with the agent's words. The nodes keep their labels.
func (s *scene) told(d *direction, name string) level {
	return func(ctx context.Context) error {
		want := remarks[name]
		m := &v1beta1.Module{}
		if err := s.f.Admin.Get(ctx, d.key(name), m); err != nil {
			return fmt.Errorf("get the Module: %w", err)
		}
		for i := range nodes {
			c := &v1beta1.NodeModulesConfig{}
			if err := s.f.Admin.Get(ctx, types.NamespacedName{Name: node(i)}, c); err != nil {
				return fmt.Errorf("get what %s says: %w", node(i), err)
			}
			a := attempt(c, d.key(name))
			if (a != nil && a.Reason == want.reason) != slices.Contains(want.nodes, i) {
				return fmt.Errorf("%s says %+v of Module %s", node(i), a, name)
			}
			if a != nil && !strings.Contains(said(m), a.Message) {
				return fmt.Errorf("the Module %s does not say %q:%s", name, a.Message, said(m))
			}
			if a != nil && !strings.Contains(said(m), want.reason) {
				return fmt.Errorf("the Module %s does not name %s:%s", name, want.reason, said(m))
			}
		}
		return s.labelled(ctx, d.key(name))
	}
}
