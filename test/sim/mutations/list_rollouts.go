// SPDX-License-Identifier: Apache-2.0

package main

// ofRollouts are in the choice of the nodes that may change now.
var ofRollouts = []mutation{
	{
		Name: "rollout-one-more", File: sharedDir + "rollout/plan.go",
		Old:    "return max(m.Limit-m.Unavailable, 0)",
		New:    "return max(m.Limit+1-m.Unavailable, 0)",
		Within: 25, Why: "budget + 1: one node more than maxUnavailable changes at the same time",
	},
	{
		Name: "rollout-away-is-available", File: sharedDir + "rollout/plan.go",
		Old:    "return !n.Ready || !n.Serving || n.Changing",
		New:    "return !n.Serving || n.Changing",
		Within: 120, Why: "a node that is not Ready takes no place",
	},
	{
		Name: "rollout-pause-lets-in", File: sharedDir + "rollout/plan.go",
		Old:    "if m.Halt == \"\" || n.Lost || n.Reverted || n.Stage == Fresh && m.Halt == HaltFailed {",
		New:    "if m.Halt == \"\" || n.Stage == Fresh {",
		Within: 120, Why: "first loads begin although the rollout is paused",
	},
	{
		Name: "rollout-pause-keeps-change", File: sharedDir + "rollout/plan.go",
		Old:    "n.Lost || n.Reverted || n.Stage",
		New:    "n.Lost || n.Stage",
		Within: 21, Why: "while the rollout is paused, nodes keep the order of a change that was reverted",
	},
	{
		Name: "rollout-replaces-at-once", File: sharedDir + "rollout/observe.go",
		Old:    "return f.Replaces && f.Config != nil && f.Order == nil && f.Live == nil",
		New:    "return false",
		Within: 20, Why: "a first load that takes out in-tree modules takes no place",
	},
	{
		Name: "rollout-shared-limitless", File: "internal/operator/budget/budget.go",
		Old:    "return max(n, 1), nil",
		New:    "return max(n, 1<<20), nil",
		Within: 105, Why: "the limit that Modules share is not one",
	},
	{
		Name: "rollout-shared-not-shared", File: "internal/operator/budget/budget.go",
		Old:    "limit - away[pool] - used[pool] - b.before(p, pool)",
		New:    "limit - away[pool] - b.before(p, pool)",
		Within: 105, Why: "nodes that other Modules have made unavailable take no place",
	},
}
