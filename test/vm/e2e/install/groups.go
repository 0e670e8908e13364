// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package install shows an installation by Helm from its beginning to its end, on a node with a
// kernel, and the other ways of installing beside it.
package install

import (
	"path/filepath"

	"github.com/drover-project/drover/test/chart/lifecycle"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

const (
	// older is the version that is installed first, newer the one that the chart is of.
	older, newer = "0.0.0-previous", "dev"
	// breakUnload has the kernel module unloaded during the upgrade.
	breakUnload = "unload"
)

// steps is what the group's steps share.
type steps struct {
	*loads.Steps

	commands lifecycle.Commands
	// digests are those of the images that were pushed, by version and name.
	digests map[string]map[string]string
	// pods are the ones that ran last, by the names of their workloads.
	pods map[string]running
	// definitions were there before the uninstall.
	definitions []string
}

// Groups are this package's.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &steps{Steps: &loads.Steps{Suite: base}, digests: map[string]map[string]string{}}
	return map[string][][]suite.Step{"install": {{
		suite.Show("", "control plane, registry with the images of two versions, and a node without Drover", s.begin),
		suite.Show("chart", "the older chart, installed by Helm, starts operator and agent from its images", s.installed),
		suite.Show("loaded", "the agent that its DaemonSet started loads a Module's kernel module", s.loaded),
		suite.Show("upgraded", "an upgrade replaces definitions, operator and agent; the kernel module is not loaded again", s.upgraded),
		suite.Show("examined", "preflights examine images of the registry, by the operator's own image: nothing that builds is installed",
			s.examined),
		suite.Show("uninstalled", "an uninstall takes operator, agent and every finalizer away, and leaves Module and definitions",
			s.uninstalled),
		suite.Show("stillLoaded", "the kernel module is in /proc/modules, from the same load", s.stillLoaded),
	}, {
		suite.Show("equal", "the chart renders the objects of config/, for each way of installing", s.equal),
		suite.Show("olm", "a bundle for the Operator Lifecycle Manager, made of config/default, is valid", s.olm),
	}}}
}

// shell is the administrator's.
func (s *steps) shell() lifecycle.Shell {
	return lifecycle.Shell{Root: s.Cache.Repository(), Home: filepath.Join(s.Dir, "helm"), Kubeconfig: s.Cluster.Kubeconfig}
}
