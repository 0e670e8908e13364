// SPDX-License-Identifier: Apache-2.0

package main

// ofAgents are in what the agent on each node decides, does and says.
var ofAgents = []mutation{
	{
		Name: "agent-pause-ignored", File: agentDir + "decide/decide.go",
		Old:    "case f.Order.Paused:\n\t\treturn paused(f)",
		New:    "case f.Order.Paused && orders.Absent(f.Order):\n\t\treturn paused(f)",
		Within: 25, Why: "a pause holds back unloads, and no loads",
	},
	{
		Name: "agent-unload-busy-is-done", File: agentDir + "execute/unload.go",
		Old:    "case err == nil, errors.Is(err, host.Errno(\"ENOENT\")):\n\t\tcase beforeMain && report.Busy(err):",
		New:    "case err == nil, errors.Is(err, host.Errno(\"ENOENT\")), report.Busy(err):",
		Within: 25, Why: "a kernel module in use, which the kernel keeps, counts as unloaded",
	},
	{
		Name: "agent-replaced-not-noted", File: agentDir + "execute/intree.go",
		Old:    "e.Journal.Replace(f.Key, name)",
		New:    "_ = e.Journal.Replace",
		Within: 20, Why: "N5: in-tree modules do not come back",
	},
	{
		Name: "agent-no-parameters", File: agentDir + "execute/load.go",
		Old:    "if s.Name == f.Plan.Main {\n\t\t\tparameters = f.Order",
		New:    "if s.Name == f.Plan.Main && e.reloading[f.Key] {\n\t\t\tparameters = f.Order",
		Within: 65, Why: "a first load gets no parameters",
	},
	{
		Name: "agent-same-load", File: agentDir + "observe/facts.go",
		Old:    "if ok && (m.Planned != s.BuildID || m.Content != s.Content) || !ok",
		New:    "if ok && m.Content != s.Content || !ok",
		Within: 20, Why: "another build of the kernel module counts as the one that is loaded",
	},
	{
		Name: "agent-attempts-stay", File: agentDir + "api.go",
		Old:    "`json:\"attempts\"`",
		New:    "`json:\"attempts,omitempty\"`",
		Within: 20, Why: "a stale Absent: what was said of an order stays when there is nothing to say any more",
	},
	{
		Name: "agent-modules-stay", File: agentDir + "api.go",
		Old:    "`json:\"modules\"`",
		New:    "`json:\"modules,omitempty\"`",
		Within: 20, Why: "a status better than the kernel: the last module that goes stays in it",
	},
}
