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
	{
		Name: "agent-o7-reason", File: agentDir + "execute/fuse.go",
		Old:    "a := orders.Waiting(v1beta1.ReasonQuarantined,",
		New:    "a := orders.Waiting(\"Struck\",",
		Within: 85, Why: "O7: an attempt has a reason that is not of the set",
	},
	{
		Name: "agent-journal-satisfies", File: agentDir + "observe/facts.go",
		Old:    "return f.Holds() && f.Loaded.DeliveryID",
		New:    "return f.Loaded != nil && f.Loaded.Complete && f.Loaded.DeliveryID",
		Within: 70, Why: "the journal is believed and not the kernel: what a person has taken out is not loaded again",
	},
	{
		Name: "agent-in-tree-stays", File: agentDir + "execute/load.go",
		Old: "\tif a, err := e.makeRoom(ctx, f); a != nil || err != nil {\n\t\treturn a, err\n\t}\n",
		New: "\tif e.reloading[f.Key] {\n\t\tif a, err := e.makeRoom(ctx, f); a != nil || err != nil {\n\t\t\treturn a, " +
			"err\n\t\t}\n\t}\n",
		Within: 20, Why: "in-tree modules leave before a reload, and not before a first load",
	},
	{
		Name: "agent-attempt-reasonless", File: agentDir + "report/status.go",
		Old:    "State: a.State, Reason: a.Reason,",
		New:    "State: a.State,",
		Within: 20, Why: "O7's kind: an attempt is told without its reason",
	},
	{
		Name: "agent-n7-lacking-untold", File: agentDir + "report/status.go",
		Old:    "case !known && !readable && !slices.Contains(ofAnyModule, name):",
		New:    "case !known && readable && !slices.Contains(ofAnyModule, name):",
		Within: 65, Why: "N7: a parameter that the module does not have is told as in force",
	},
}
