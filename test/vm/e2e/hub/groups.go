// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package hub shows a hub that builds for two spokes.
package hub

import (
	"github.com/drover-project/drover/test/vm/e2e/builds"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// steps is what the groups' steps share.
type steps struct {
	*builds.Steps

	// spokes are by name.
	spokes map[string]*spoke
}

// Groups are the groups about a hub and its spokes.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &steps{Steps: &builds.Steps{Steps: &loads.Steps{Suite: base}}}
	return map[string][][]suite.Step{
		"hub": {{
			suite.Show("", "a hub that builds, before Open Cluster Management is there", s.startHub),
			suite.Show("", "a ManagedClusterModule says what is missing", s.withoutOCM),
			suite.Show("", "Open Cluster Management's kinds come, and two spokes with kernels of their own, each with its work agent", s.hubGrows),
			suite.Show("", "by ManifestWorks, each kernel's image is made once, on the hub, and loaded on its spoke", s.works),
			suite.Show("", "a hub that restarts writes nothing", s.byWorks(s.hubRestarts)),
			suite.Show("", "by ManifestWorks, a bad build stays in the first wave", s.byWorks(s.badBuild)),
			suite.Show("", "by ManifestWorks, a spoke that is cut off keeps its module, heals it and catches up", s.byWorks(s.cutOff)),
			suite.Show("", "by ManifestWorks, what is deselected or deleted leaves nothing", s.byWorks(s.leaves)),
			suite.Show("", "by kubeconfigs, the same", s.directly),
		}},
	}
}
