// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package agent shows what the agent costs on a node, and that it needs all that it is allowed.
package agent

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// steps is what the groups' steps share.
type steps struct {
	*loads.Steps

	// loadtime is a program of group agent.
	loadtime string
	// agentPod is what the agent is deployed with, agentName its newest pod.
	agentPod  *corev1.PodSpec
	agentName string
}

// Groups are the groups about what the agent costs, and what it is allowed.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &steps{Steps: &loads.Steps{Suite: base}}
	start := suite.Show("", "control plane, registry, operator and the first node", s.Start)
	loaded := suite.Show("loaded", "a Module loads a module of ours with its parameters", s.LoadModule)
	return map[string][][]suite.Step{
		"agent": {{
			suite.Show("", "kmod and what compares it with the agent", s.benchTools),
			start,
			suite.Show("", "the agent and modprobe have loaded the same module in turn", s.loadRatio),
			loaded,
			suite.Show("", "an agent with nothing to do was watched", s.idle),
			suite.Show("", "the static pod's agent has loaded at a boot without the API server", s.bootTime),
		}},
		"privileges": {{
			start,
			suite.Show("", "modules that show what the agent does", s.prepareBehaviours),
			suite.Show("limits", "the agent's process has the capabilities of the DaemonSet and no other, seccomp, and cannot gain any", s.limits),
			suite.Show("whole", "with all that the DaemonSet allows, all works", s.whole),
			suite.Show("withoutEach", "without any one of it, something does not", s.withoutEach),
		}},
	}
}
