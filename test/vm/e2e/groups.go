// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"maps"

	"github.com/drover-project/drover/test/vm/e2e/agent"
	"github.com/drover-project/drover/test/vm/e2e/boots"
	"github.com/drover-project/drover/test/vm/e2e/builds"
	"github.com/drover-project/drover/test/vm/e2e/hub"
	"github.com/drover-project/drover/test/vm/e2e/install"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/operators"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// groups are the steps by the name of their group, in lanes that run beside each other: a virtual
// node has one processor, and so has work for one of the host's. A step may stand on the ones
// before it in its lane.
func groups(s *suite.Suite) map[string][][]suite.Step {
	all := loads.Groups(s)
	for _, some := range []func(*suite.Suite) map[string][][]suite.Step{builds.Groups, hub.Groups, operators.Groups, agent.Groups,
		install.Groups, boots.Groups} {
		maps.Copy(all, some(s))
	}
	return all
}

// questions of a group are its own for whoever looks at a failed step, for kubectl.
var questions = map[string][][]string{"operators": operators.Questions, "hub": hub.Questions}
