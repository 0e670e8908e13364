// SPDX-License-Identifier: Apache-2.0

package main

// ofWakes are in what wakes controllers up, in their caches, and in what they leave out.
var ofWakes = []mutation{
	{
		Name: "orders-no-wake-by-pause", File: moduleDir + "watch.go",
		Old:    "return watch.Rewritten(before, now) || !placement.SameWishes(before, now)",
		New:    "return watch.Rewritten(before, now)",
		Within: 40, Why: "lost wake-up: an annotation of the Module, such as the end of a pause, causes no pass",
	},
	{
		Name: "orders-no-wake-by-nodes", File: moduleDir + "watch.go",
		Old:    "Watches(&corev1.Node{}, watch.Changes(c.nodeEvent)).",
		New:    "Watches(&corev1.Node{}, watch.Changes(func(context.Context, watch.Queue, *corev1.Node, *corev1.Node) {})).",
		Within: 120, Why: "lost wake-up: what becomes of nodes causes no pass",
	},
	{
		Name: "orders-no-wake-by-reports", File: moduleDir + "watch.go",
		Old:    "c.enqueueChanged(ctx, q, before, now)\n\tswitch {",
		New:    "switch {",
		Within: 20, Why: "lost wake-up: what agents say causes no pass",
	},
	{
		Name: "orders-no-alarm", File: moduleDir + "controller.go",
		Old:    "soon(pl.Aim.Due)\n",
		New:    "",
		Within: 120, Why: "no pass comes at the end of a grace",
	},
	{
		Name: "orders-rest-by-no-module-version", File: moduleDir + "rest.go",
		Old:    "return common{module: snap.Module.ResourceVersion, images:",
		New:    "return common{images:",
		Within: 20, Why: "rests without version: nodes that rested are not looked at again when the Module is edited",
	},
	{
		Name: "orders-cache-without-boot", File: "internal/operator/cache.go",
		Old:    "info.MachineID, info.SystemUUID = \"\", \"\"",
		New:    "info.MachineID, info.SystemUUID, info.BootID = \"\", \"\", \"\"",
		Within: 20, Why: "O11's kind: the cache drops a field of nodes by which rules decide",
	},
	{
		Name: "labels-no-wake-by-reports", File: nodeDir + "watch.go",
		Old:    "&handler.EnqueueRequestForObject{}, watch.If(watch.ConfigChanged)).",
		New:    "&handler.EnqueueRequestForObject{}, onlyNew).",
		Within: 20, Why: "lost wake-up: what agents say causes no pass of labels",
	},
	{
		Name: "status-no-wake-by-reports", File: nodeDir + "watch.go",
		Old:    "watch.Changes(r.reported), watch.If(reportChanged)).",
		New:    "watch.Changes(r.reported), onlyNew).",
		Within: 20, Why: "lost wake-up: what agents say causes no pass of the status",
	},
}
