// SPDX-License-Identifier: Apache-2.0

package main

// ofOrders are in what gives orders to nodes.
var ofOrders = []mutation{
	{
		Name: "orders-unowned", File: moduleDir + "act.go",
		Old: "WithOwnerReferences(metaac.OwnerReference().\n" +
			"\t\tWithAPIVersion(\"v1\").WithKind(\"Node\").WithName(n.Node.Name).WithUID(n.Node.UID)).",
		New:    "WithOwnerReferences([]*metaac.OwnerReferenceApplyConfiguration(nil)...).",
		Within: 20, Why: "orders are applied without an owner reference, and stay when their node goes",
	},
	{
		Name: "orders-unload-unheld", File: moduleDir + "act.go",
		Old:    "config.WithFinalizers(nodeplan.OrdersFinalizer)",
		New:    "config.WithFinalizers()",
		Within: 20, Why: "an order to unload is applied without the finalizer that keeps it until it is answered",
	},
	{
		Name: "orders-no-grace", File: planDir + "aim.go",
		Old:    "return p.grace(n, a, ReasonDeselected)",
		New:    "a.Unload = ReasonDeselected\n\t\treturn a",
		Within: 20, Why: "a node that is deselected unloads at once",
	},
	{
		Name: "orders-departs-unanswered", File: planDir + "step.go",
		Old:    "!s.Remove && (s.Node.follows() || s.Write != nil)",
		New:    "!s.Remove && s.Write != nil",
		Within: 40, Why: "a deleted Module does not wait for the nodes' answers",
	},
	{
		Name: "orders-carriers-stay", File: planDir + "delivery.go",
		Old:    "case n.Holds(a.Order.Delivery.ID):\n\t\td.Discard = standing(n.Carriers...)\n",
		New:    "case n.Holds(a.Order.Delivery.ID):\n",
		Within: 20, Why: "a carrier that has delivered is not deleted",
	},
	{
		Name: "orders-policy-told-only", File: planDir + "aim.go",
		Old:    "a.Keep = a.Denied != nil || p.quarantined(n, a.Order)",
		New:    "a.Keep = p.quarantined(n, a.Order)",
		Within: 50, Why: "what a ModulePolicy does not allow is told, and ordered all the same",
	},
	{
		Name: "orders-taints-ignored", File: sharedDir + "placement/unload.go",
		Old:    "u.Asks(m, node) == nil && (follows || Untolerated(",
		New:    "u.Asks(m, node) == nil && (true || Untolerated(",
		Within: 120, Why: "taints are not looked at",
	},
	{
		Name: "orders-unload-taints-ignored", File: sharedDir + "placement/unload.go",
		Old:    "if len(u) == 0 {",
		New:    "if len(u) == 0 || true {",
		Within: 200, Why: "a taint that asks for an unload is not looked at",
	},
	{
		Name: "orders-labels-left", File: moduleDir + "act.go",
		Old:    "\tpatch = append(patch, takeLabels(config, s.Key)...)\n",
		New:    "",
		Within: 50, Why: "the labels by which clients find NodeModulesConfigs of a Module stay",
	},
	{
		Name: "orders-grace-forgotten", File: planDir + "aim.go",
		Old:    "if !known {\n\t\tsince = p.Now\n\t}",
		New:    "if known {\n\t\tsince = p.Now\n\t}",
		Within: 20, Why: "a grace begins a long time ago, and is over at once",
	},
	{
		Name: "orders-grace-for-ever", File: planDir + "aim.go",
		Old:    "\tsince, known := p.Memory.Unwanted[n.Node.UID]\n\tif !known {\n\t\tsince = p.Now\n\t}\n\ta.Unwanted = since",
		New:    "\tsince := p.Now\n\ta.Unwanted = since",
		Within: 20, Why: "a grace begins anew with each pass, and never ends",
	},
	{
		Name: "orders-without-policy", File: planDir + "order.go",
		Old:    "\t\tUnloadPolicy:    container.UnloadPolicy,\n",
		New:    "",
		Within: 20, Why: "orders do not say the Module's unload policy",
	},
	{
		Name: "orders-absent-unexplained", File: planDir + "order.go",
		Old:    "order.State, order.Reason, order.Next, order.UnloadPolicy = v1beta1.NodeModuleAbsent, a.Unload, nil, policy",
		New:    "order.State, order.Next, order.UnloadPolicy = v1beta1.NodeModuleAbsent, nil, policy",
		Within: 20, Why: "an order to unload does not say why",
	},
	{
		Name: "orders-any-answer", File: planDir + "order.go",
		Old:    "\tcase n.Answered():\n",
		New:    "\tcase n.Attempt != nil:\n",
		Within: 25, Why: "an order to unload is over as soon as the agent says anything of it, such as that the module is in use",
	},
	{
		Name: "orders-carrier-again", File: planDir + "delivery.go",
		Old:    "case n.Holds(a.Order.Delivery.ID):",
		New:    "case n.Holds(a.Order.Delivery.ID) && n.Live != nil:",
		Within: 75, Why: "a node that holds an image and has nothing live gets another carrier",
	},
	{
		Name: "orders-one-owner", File: moduleDir + "act.go",
		Old:    "err = kube.Apply(ctx, c.client, kube.ModuleOwner(order.Namespace, order.Name), config)",
		New:    "err = kube.Apply(ctx, c.client, kube.ModuleOwner(order.Namespace, \"orders\"), config)",
		Within: 20, Why: "all Modules of a namespace apply their orders as one field owner: each takes out those of the others",
	},
	{
		Name: "orders-unlabelled", File: moduleDir + "act.go",
		Old:    "\n\t\tWithLabels(nodeplan.Labels(order)).WithSpec(",
		New:    "\n\t\tWithSpec(",
		Within: 20, Why: "NodeModulesConfigs get no labels by which clients find them",
	},
	{
		Name: "orders-never-idle", File: moduleDir + "controller.go",
		Old:    "if p.made > 0 {\n\t\tsoon(drainDelay)\n\t}",
		New:    "soon(drainDelay)",
		Within: 55, Why: "rests: passes follow one another although nothing is left to do",
	},
	{
		Name: "orders-module-unheld", File: moduleDir + "controller.go",
		Old:    "\tif !snap.leaving() {\n\t\tif err := kube.AddFinalizer",
		New:    "\tif !snap.leaving() && len(snap.images) > 0 {\n\t\tif err := kube.AddFinalizer",
		Within: 20, Why: "finalizer missing: a Module gets none unless its images are made in the cluster",
	},
	{
		Name: "orders-problems-stay", File: moduleDir + "controller.go",
		Old:    "\t\tfound[v1beta1.AllNodes] = *whole\n\t}\n\treturn problems.Report(",
		New:    "\t\tfound[v1beta1.AllNodes] = *whole\n\t}\n\tif len(found) == 0 {\n\t\treturn nil\n\t}\n\treturn problems.Report(",
		Within: 50, Why: "the last problem of a Module stays in its status",
	},
	{
		Name: "orders-delivery-unnamed", File: planDir + "order.go",
		Old:    "\t\tDelivery:        &v1beta1.Delivery{ID: state.Delivery},\n",
		New:    "\t\tDelivery:        &v1beta1.Delivery{ID: m.Name},\n",
		Within: 20, Why: "deliveries are named by the Module and not by what is in them: another image counts as held",
	},
	{
		Name: "orders-evicts-by-name", File: sharedDir + "drain/drain.go",
		Old:    "return m.Pod == pod.Namespace+\"/\"+pod.Name && (m.UID == \"\" || m.UID == pod.UID)",
		New:    "return m.Pod == pod.Namespace+\"/\"+pod.Name",
		Within: 1000, Why: "a pod that comes back under the name of one that held the kernel module is evicted for it",
	},
}
