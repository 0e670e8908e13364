// SPDX-License-Identifier: Apache-2.0

package main

// ofDisks are in what the agent keeps on disk: journal, fuse and store.
var ofDisks = []mutation{
	{
		Name: "agent-next-not-kept", File: agentDir + "journal/journal.go",
		Old:    "if o.Next != nil {\n\t\t\tkeep(o.Next.ID)\n\t\t}\n",
		New:    "",
		Within: 20, Why: "what was delivered ahead of the next order is thrown away",
	},
	{
		Name: "agent-store-retains-digests", File: agentDir + "store/room.go",
		Old:    "if slices.Contains(keep, r.ID) {",
		New:    "if slices.Contains(keep, r.Digest) {",
		Within: 20, Why: "the store takes the deliveries to keep for digests, and keeps none",
	},
	{
		Name: "agent-refused-adopted", File: agentDir + "decide/decide.go",
		Old:    "if live && !f.Plan.BuiltIn && !fits && !slices.Contains(f.InTree(), f.Plan.Main) {",
		New:    "if live && !f.Plan.BuiltIn && !fits && f.Loaded != nil && !slices.Contains(f.InTree(), f.Plan.Main) {",
		Within: 100, Why: "what a person has loaded is no longer left alone: another build of the name counts as nothing in the way",
	},
	{
		Name: "agent-fuse-not-opened", File: agentDir + "fuse/state.go",
		Old:    "\te.Intent, e.Live = now, time.Time{}\n",
		New:    "\te.Intent, e.Live = time.Time{}, now\n",
		Within: 55, Why: "a load that has not returned counts as one that settles: the first strike is spared",
	},
	{
		Name: "agent-fuse-in-memory", File: agentDir + "execute/fuse.go",
		Old:    "return wrap(e.Fuse.Intent(fuseBuild(s), e.Clock.Now()), \"note the load of %s\", s.Name)",
		New:    "_ = fuseBuild(s)\n\treturn nil",
		Within: 55, Why: "a load is not noted before the call, and one that takes the node down is tried at once",
	},
	{
		Name: "agent-artifacts-unheld", File: agentDir + "journal/journal.go",
		Old:    "\t\tif digest, ok := held[id]; ok {\n\t\t\twanted[id] = digest\n\t\t}\n\t}",
		New:    "\t\tif id != \"\" {\n\t\t\twanted[id] = held[id]\n\t\t}\n\t}",
		Within: 20, Why: "an agent says that it holds what it is only to get",
	},
}
