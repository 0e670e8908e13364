// SPDX-License-Identifier: Apache-2.0

package main

const pluginDir = "internal/operator/controller/plugin/"

// ofPlugins are in what is made of a Module's device plugin, and in what is told of it.
var ofPlugins = []mutation{
	{
		Name: "plugin-anywhere", File: pluginDir + "desired.go",
		Old:    "if module.Spec.ModuleLoader == nil {\n\t\treturn module.Spec.Selector\n\t}\n\tlabels",
		New:    "if module.Spec.ModuleLoader != nil {\n\t\treturn module.Spec.Selector\n\t}\n\tlabels",
		Within: 30, Why: "a device plugin runs on all selected nodes, and on those with the ready label where nothing is loaded",
	},
	{
		Name: "plugin-unawaited", File: pluginDir + "desired.go",
		Old:    "loader != nil && loader.Container.Modprobe.ModuleName != \"\" {",
		New:    "loader != nil && loader.Container.Modprobe.ModuleName == \"\" {",
		Within: 60, Why: "a device plugin does not wait for the kernel module: the label may be older than a reboot",
	},
	{
		Name: "plugin-pause-ignored", File: pluginDir + "controller.go",
		Old:    "if placement.Paused(module) && module.DeletionTimestamp == nil {",
		New:    "if placement.Paused(module) && module.DeletionTimestamp != nil {",
		Within: 65, Why: "a pause of the Module does not keep its device plugin as it is",
	},
	{
		Name: "plugin-restarts-all", File: pluginDir + "restart.go",
		Old:    "return ended != nil && ended.Before(began)",
		New:    "return ended != nil",
		Within: 30, Why: "each load ends a plugin's pod, also one that has waited for it",
	},
	{
		Name: "plugin-ready-unasked", File: nodeDir + "plugins.go",
		Old:    "if owner == nil || !podReady(pod) {",
		New:    "if owner == nil {",
		Within: 120, Why: "a plugin counts as ready when its pod is there",
	},
	{
		Name: "plugin-counts-modules", File: sharedDir + "status/compute.go",
		Old:    "AvailableNumber:             count(nodes, func(n *Node) bool { return n.PluginReady }),",
		New:    "AvailableNumber:             count(nodes, func(n *Node) bool { return n.Usable }),",
		Within: 30, Why: "the status counts nodes with the kernel module as nodes with the plugin",
	},
	{
		Name: "plugin-ready-anywhere", File: sharedDir + "status/compute.go",
		Old:    "if len(pending) == 0 {\n\t\treturn yes(kind, v1beta1.ReasonDevicesReady",
		New:    "if len(pending) < len(hosts) {\n\t\treturn yes(kind, v1beta1.ReasonDevicesReady",
		Within: 70, Why: "DevicesReady is True when the plugin is ready on one node",
	},
	{
		Name: "plugin-stays", File: pluginDir + "controller.go",
		Old:    "return result, problem, c.prune(ctx, module, now, nil, nil)",
		New:    "return result, problem, nil",
		Within: 120, Why: "a device plugin that is no longer asked for stays",
	},
}
