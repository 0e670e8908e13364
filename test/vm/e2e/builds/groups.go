// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package builds shows images of kernel modules that are built and signed in the cluster.
package builds

import (
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// Steps is what the groups' steps share.
type Steps struct {
	*loads.Steps

	// packages are what group dkms did, by their names.
	packages map[string]*packageResult
	// signingKey and signingCert are for images that are built here, PEM.
	signingKey, signingCert []byte
	// SpokePorts are those of the API servers of group hub's spokes, which the hub's pod reaches.
	SpokePorts map[string]int
}

// Groups are the groups about images that are made in the cluster.
func Groups(base *suite.Suite) map[string][][]suite.Step {
	s := &Steps{Steps: &loads.Steps{Suite: base}}
	start := suite.Show("", "control plane, registry, operator and the first node", s.Start)
	return map[string][][]suite.Step{
		"build": {{
			start,
			suite.Show("", "toolchain, Buildah, headers and the operator that builds", s.builders),
			suite.Show("", "a node that builds, at the machine's own speed", s.StartBuilder),
			suite.Show("", "a build from a Dockerfile is asked for", s.dockerBegins),
			suite.Show("native", "a native build from a ConfigMap is signed, pushed and loaded, under Pod Security restricted", s.nativeSample),
			suite.Show("errorLine", "the compiler's line about a mistake is in the condition", s.compilerLine),
			suite.Show("exactlyOnce", "20 toggles over all kinds of inputs make one Job per input, and none for a repeat", s.exactlyOnce),
			suite.Show("dockerfile", "a build from a Dockerfile is signed, pushed and loaded", s.dockerLoads),
			suite.Show("registryWiped", "what the registry forgot is made again when a node needs it, once; a node that holds it goes on, over a "+
				"reboot, too", s.registryWiped),
			suite.Show("neverUnsigned", "of all images that the registry was ever sent, none has an unsigned module", s.neverUnsigned),
		}},
		"dkms": {{
			start,
			suite.Show("", "toolchain, Buildah, headers and the operator that builds", s.builders),
			suite.Show("", "a node that builds, at the machine's own speed", s.StartBuilder),
			suite.Show("dkms", "each package is built natively, under Pod Security restricted, signed, pushed and loaded", s.dkms),
			suite.Show("dockerfile", "those that could be loaded are built once more by one Dockerfile, signed, pushed and loaded together",
				s.dkmsDockerfile),
		}},
	}
}
