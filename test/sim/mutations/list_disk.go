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
		Within: 65, Why: "a load that has not returned counts as one that settles: the first strike is spared",
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
		Within: 25, Why: "an agent says that it holds what it is only to get",
	},
	{
		Name: "agent-file-unsynced", File: agentDir + "statefile/statefile.go",
		Old:    "\tif err == nil {\n\t\terr = f.Sync()\n\t}\n",
		New:    "",
		Within: 80, Why: "a state file gets its name before its content is on the disk",
	},
	{
		Name: "agent-name-unsynced", File: agentDir + "statefile/statefile.go",
		Old:    "\tif err := d.Sync(); err != nil {\n\t\treturn fmt.Errorf(\"sync the directory: %w\", err)\n\t}\n",
		New:    "",
		Within: 80, Why: "a state file's new name is not on the disk when the agent goes on",
	},
	{
		Name: "agent-tree-unsynced", File: agentDir + "store/import.go",
		Old:    "return s.syncDirs(dst)",
		New:    "return nil",
		Within: 80, Why: "names in a delivery's tree are not on the disk when it counts as held",
	},
	{
		Name: "agent-record-unsynced", File: agentDir + "store/store.go",
		Old:    "0o600, s.opt.Sync)",
		New:    "0o600, statefile.NoSync)",
		Within: 80, Why: "a delivery's record is not synced",
	},
	{
		Name: "agent-journal-unsynced", File: agentDir + "journal/journal.go",
		Old:    "schema, j, j.disk.sync)",
		New:    "schema, j, statefile.NoSync)",
		Within: 80, Why: "the journal is not synced",
	},
	{
		Name: "agent-orders-unsynced", File: agentDir + "boot.go",
		Old:    "0o600, w.sync)",
		New:    "0o600, statefile.NoSync)",
		Within: 80, Why: "the record of orders, by which a node boots without the API server, is not synced",
	},
	{
		Name: "agent-fuse-unsynced", File: agentDir + "fuse/fuse.go",
		Old:    "Fsync: sync}",
		New:    "Fsync: statefile.NoSync}",
		Within: 80, Why: "the note of a load is not synced before the call",
	},
}
