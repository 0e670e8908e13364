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
		Name: "labels-no-wake-by-reports", File: nodeDir + "watch.go",
		Old:    "&handler.EnqueueRequestForObject{}, watch.If(watch.ConfigChanged)).",
		New:    "&handler.EnqueueRequestForObject{}, onlyNew).",
		Within: 25, Why: "lost wake-up: what agents say causes no pass of labels",
	},
	{
		Name: "usable-is-any-build", File: sharedDir + "status/facts.go",
		Old:    "!leaving && !e.observed().Unusable &&\n\t\trollout.SameBuild(&e.Order.Config, e.Live.Config)",
		New:    "!leaving && !e.observed().Unusable",
		Within: 25, Why: "a node that serves another build than is ordered counts as available and keeps its label",
	},
	{
		Name: "live-in-any-boot", File: sharedDir + "rollout/observe.go",
		Old:    "return e.Live != nil && e.Live.BootID != \"\" && e.Live.BootID == node.Status.NodeInfo.BootID",
		New:    "return e.Live != nil && e.Live.BootID != \"\"",
		Within: 60, Why: "what was live before a node's boot counts as live after it",
	},
	{
		Name: "status-times-by-reason", File: sharedDir + "status/compute.go",
		Old:    "o != nil && o.Status == c.Status {",
		New:    "o != nil && o.Status == c.Status && o.Reason == c.Reason {",
		Within: 25, Why: "a condition's lastTransitionTime changes with its reason",
	},
	{
		Name: "status-no-wake-by-reports", File: nodeDir + "watch.go",
		Old:    "watch.Changes(r.reported), watch.If(reportChanged)).",
		New:    "watch.Changes(r.reported), onlyNew).",
		Within: 25, Why: "lost wake-up: what agents say causes no pass of the status",
	},
}

// ofRollouts are in the choice of the nodes that may change now.
var ofRollouts = []mutation{
	{
		Name: "rollout-one-more", File: sharedDir + "rollout/plan.go",
		Old:    "return max(m.Limit-m.Unavailable, 0)",
		New:    "return max(m.Limit+1-m.Unavailable, 0)",
		Within: 25, Why: "budget + 1: one node more than maxUnavailable changes at the same time",
	},
}
