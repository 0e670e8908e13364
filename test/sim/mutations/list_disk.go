// SPDX-License-Identifier: Apache-2.0

package main

// ofDisks are in what the agent keeps on disk: journal, fuse and store.
var ofDisks = []mutation{
	{
		Name: "agent-next-not-kept", File: agentDir + "journal/journal.go",
		Old:    "if o.Next != nil {\n\t\t\tkeep(o.Next.ID)\n\t\t}\n",
		New:    "",
		Within: 85, Why: "what was delivered ahead of the next order is thrown away",
	},
	{
		Name: "agent-store-retains-digests", File: agentDir + "store/room.go",
		Old:    "if slices.Contains(keep, r.ID) {",
		New:    "if slices.Contains(keep, r.Digest) {",
		Within: 20, Why: "the store takes the deliveries to keep for digests, and keeps none",
	},
	{
		Name: "agent-artifacts-unheld", File: agentDir + "journal/journal.go",
		Old:    "\t\tif digest, ok := held[id]; ok {\n\t\t\twanted[id] = digest\n\t\t}\n\t}",
		New:    "\t\tif id != \"\" {\n\t\t\twanted[id] = held[id]\n\t\t}\n\t}",
		Within: 45, Why: "an agent says that it holds what it is only to get",
	},
}
