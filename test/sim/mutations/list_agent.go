// SPDX-License-Identifier: Apache-2.0

package main

// ofAgents are in the agent on each node.
var ofAgents = []mutation{
	{
		Name: "agent-boot-ignored", File: agentDir + "decide/decide.go",
		Old: "if f.Order.UnloadPolicy == v1beta1.UnloadOnReboot {\n\t\t\treturn rest(rebootRequired(f.Loaded.Main, \"is replaced\"))",
		New: "if f.Order.UnloadPolicy == v1beta1.UnloadOnReboot && orders.Absent(f.Order) {\n\t\t\treturn rest(rebootRequired(f.Loaded.Main, " +
			"\"is replaced\"))",
		Within: 25, Why: "OnReboot keeps what is to go, and not what is to be replaced",
	},
	{
		Name: "agent-unload-busy-is-done", File: agentDir + "execute/unload.go",
		Old:    "case err == nil, errors.Is(err, host.Errno(\"ENOENT\")):\n\t\tcase beforeMain && report.Busy(err):",
		New:    "case err == nil, errors.Is(err, host.Errno(\"ENOENT\")), report.Busy(err):",
		Within: 60, Why: "a kernel module in use, which the kernel keeps, counts as unloaded",
	},
	{
		Name: "agent-attempts-stay", File: agentDir + "api.go",
		Old:    "`json:\"attempts\"`",
		New:    "`json:\"attempts,omitempty\"`",
		Within: 25, Why: "a stale Absent: what was said of an order stays when there is nothing to say any more",
	},
	{
		Name: "agent-modules-stay", File: agentDir + "api.go",
		Old:    "`json:\"modules\"`",
		New:    "`json:\"modules,omitempty\"`",
		Within: 25, Why: "a status better than the kernel: the last module that goes stays in it",
	},
	{
		Name: "agent-next-not-kept", File: agentDir + "journal/journal.go",
		Old:    "if o.Next != nil {\n\t\t\tkeep(o.Next.ID)\n\t\t}\n",
		New:    "",
		Within: 10, Why: "what was delivered ahead of the next order is thrown away",
	},
	{
		Name: "agent-store-retains-digests", File: agentDir + "store/room.go",
		Old:    "if slices.Contains(keep, r.ID) {",
		New:    "if slices.Contains(keep, r.Digest) {",
		Within: 10, Why: "the store takes the deliveries to keep for digests, and keeps none",
	},
}
