// SPDX-License-Identifier: Apache-2.0

package main

// ofReports are in what the operator tells: labels and the Module's status.
var ofReports = []mutation{
	{
		Name: "labels-stay", File: sharedDir + "nodemarks/nodemarks.go",
		Old:    "var suffixes = []string{\".ready\", ",
		New:    "var suffixes = []string{",
		Within: 25, Why: "the ready label stays on nodes after an unload",
	},
	{
		Name: "usable-is-any-build", File: sharedDir + "status/facts.go",
		Old:    "!leaving && !e.observed().Unusable &&\n\t\trollout.SameBuild(&e.Order.Config, e.Live.Config)",
		New:    "!leaving && !e.observed().Unusable",
		Within: 25, Why: "a node that serves another build than is ordered counts as available and keeps its label",
	},
}

// ofRollouts are in the choice of the nodes that may change now.
var ofRollouts = []mutation{}
