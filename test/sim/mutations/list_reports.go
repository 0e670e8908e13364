// SPDX-License-Identifier: Apache-2.0

package main

// ofReports are in what the operator tells: labels, conditions and the Module's status.
var ofReports = []mutation{
	{
		Name: "labels-stay", File: nodeDir + "labels.go",
		Old:    "if _, ok := want[label]; !ok && nodemarks.Kept(label) {",
		New:    "if _, ok := want[label]; !ok && nodemarks.Drives(label) {",
		Within: 20, Why: "the ready label stays on nodes after an unload",
	},
	{
		Name: "live-in-any-boot", File: sharedDir + "rollout/observe.go",
		Old:    "return e.Live != nil && e.Live.BootID != \"\" && e.Live.BootID == node.Status.NodeInfo.BootID",
		New:    "return e.Live != nil && e.Live.BootID != \"\"",
		Within: 20, Why: "what was live before a node's boot counts as live after it",
	},
	{
		Name: "status-times-by-reason", File: sharedDir + "status/compute.go",
		Old:    "o != nil && o.Status == c.Status {",
		New:    "o != nil && o.Status == c.Status && o.Reason == c.Reason {",
		Within: 20, Why: "a condition's lastTransitionTime changes with its reason",
	},
	{
		Name: "status-counts-selected", File: sharedDir + "status/compute.go",
		Old:    "DesiredNumber:               count(nodes, func(n *Node) bool { return n.Ordered }),",
		New:    "DesiredNumber:               int32(len(wanted)),",
		Within: 120, Why: "nodes count as desired that no mapping covers",
	},
	{
		Name: "status-counts-live", File: sharedDir + "status/compute.go",
		Old:    "return n.Usable }),",
		New:    "return n.Live }),",
		Within: 30, Why: "status better than the kernels: nodes that serve an earlier build count as available",
	},
	{
		Name: "status-remark-is-open", File: sharedDir + "rollout/observe.go",
		Old:    "return a != nil && (a.Reason == v1beta1.ReasonParametersDiffer || a.Reason == v1beta1.ReasonDependencyKept)",
		New:    "return a != nil && a.Reason == v1beta1.ReasonDependencyKept",
		Within: 65, Why: "a node that serves what is ordered, with a remark about parameters, counts as one that does not",
	},
	{
		Name: "labels-only-of-orders", File: sharedDir + "status/facts.go",
		Old:    "(rollout.SameBuild(&e.Order.Config, e.Live.Config) || e.Stays())",
		New:    "rollout.SameBuild(&e.Order.Config, e.Live.Config)",
		Within: 20, Why: "what stays until the next boot loses the ready label as soon as another build is ordered",
	},
	{
		Name: "condition-stays", File: conditionDir + "decide.go",
		Old:    "\tcase want == nil:\n",
		New:    "\tcase want == nil && have.Status == corev1.ConditionTrue:\n\t\treturn nil, nil\n\tcase want == nil:\n",
		Within: 20, Why: "the node's condition stays when its last Module goes",
	},
}
