// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// mutation is a fault that is put into the product.
type mutation struct {
	Name string
	// File of the product, from the repository's folder.
	File string
	// Old is text that the file has once, and New what stands in its place.
	Old, New string
	// Within so many histories it has to be found.
	Within int
	// Why says which fault this is, in a sentence.
	Why string
	// Crashes says why a panic, or a hang, counts as found; empty: it does not.
	Crashes string
}

// mutations are all. What the simulation cannot find is not among them: ADR 0046 says what it does
// not show.
var mutations = slices.Concat(ofOrders, ofReports, ofRollouts, ofAgents, ofPlugins)

const (
	moduleDir = "internal/operator/controller/module/"
	nodeDir   = "internal/operator/controller/node/"
	planDir   = "internal/operator/nodeplan/"
	sharedDir = "internal/shared/"
	agentDir  = "internal/agent/"
)

// ofOrders are in what gives orders to nodes.
var ofOrders = []mutation{
	{
		Name: "orders-no-wake-by-pause", File: moduleDir + "watch.go",
		Old:    "return watch.Rewritten(before, now) || !placement.SameWishes(before, now)",
		New:    "return watch.Rewritten(before, now)",
		Within: 25, Why: "lost wake-up: an annotation of the Module, such as the end of a pause, causes no pass",
	},
	{
		Name: "orders-no-wake-by-reports", File: moduleDir + "watch.go",
		Old:    "c.enqueueChanged(ctx, q, before, now)\n\tswitch {",
		New:    "switch {",
		Within: 25, Why: "lost wake-up: what agents say causes no pass",
	},
	{
		Name: "orders-no-alarm", File: moduleDir + "controller.go",
		Old:    "soon(pl.Aim.Due)\n",
		New:    "",
		Within: 60, Why: "no pass comes at the end of a grace",
	},
	{
		Name: "orders-unowned", File: moduleDir + "act.go",
		Old: "WithOwnerReferences(metaac.OwnerReference().\n\t\tWithAPIVersion(\"v1\").WithKind(\"Node\")" +
			".WithName(n.Node.Name).WithUID(n.Node.UID)).",
		New:    "WithOwnerReferences([]*metaac.OwnerReferenceApplyConfiguration(nil)...).",
		Within: 5, Why: "orders are applied without an owner reference, and stay when their node goes",
	},
	{
		Name: "orders-unload-unheld", File: moduleDir + "act.go",
		Old:    "config.WithFinalizers(nodeplan.OrdersFinalizer)",
		New:    "config.WithFinalizers()",
		Within: 25, Why: "an order to unload is applied without the finalizer that keeps it until it is answered",
	},
	{
		Name: "orders-rest-by-no-module-version", File: moduleDir + "rest.go",
		Old:    "return common{module: snap.Module.ResourceVersion, images:",
		New:    "return common{images:",
		Within: 25, Why: "rests without version: nodes that rested are not looked at again when the Module is edited",
	},
	{
		Name: "orders-no-grace", File: planDir + "aim.go",
		Old:    "return p.grace(n, a, ReasonDeselected)",
		New:    "a.Unload = ReasonDeselected\n\t\treturn a",
		Within: 25, Why: "a node that is deselected unloads at once",
	},
	{
		Name: "orders-pause-ignored", File: planDir + "aim.go",
		Old:    "case a.Wishes.Paused, m == nil && p.survives(n):",
		New:    "case m == nil && p.survives(n):",
		Within: 25, Why: "a pause is written into orders, and does not keep them as they are",
	},
	{
		Name: "orders-departs-unanswered", File: planDir + "step.go",
		Old:    "!s.Remove && (s.Node.follows() || s.Write != nil)",
		New:    "!s.Remove && s.Write != nil",
		Within: 60, Why: "a deleted Module does not wait for the nodes' answers",
	},
	{
		Name: "orders-carriers-stay", File: planDir + "delivery.go",
		Old:    "case n.Holds(a.Order.Delivery.ID):\n\t\td.Discard = standing(n.Carriers...)\n",
		New:    "case n.Holds(a.Order.Delivery.ID):\n",
		Within: 10, Why: "a carrier that has delivered is not deleted",
	},
	{
		Name: "orders-cache-without-boot", File: "internal/operator/cache.go",
		Old:    "info.MachineID, info.SystemUUID = \"\", \"\"",
		New:    "info.MachineID, info.SystemUUID, info.BootID = \"\", \"\", \"\"",
		Within: 10, Why: "O11's kind: the cache drops a field of nodes by which rules decide",
	},
}
