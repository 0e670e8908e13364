// SPDX-License-Identifier: Apache-2.0

package reasons

import "github.com/drover-project/drover/api/kmm/v1beta1"

// well are the reasons where all is well, or on its way.
var well = []Reason{
	{
		Name: v1beta1.ReasonReady, Class: ClassFine,
		Meaning: "everything that the Module asks for is ready",
	},
	{
		Name: v1beta1.ReasonAllKernelsCovered, Class: ClassFine,
		Meaning: "every selected node's kernel has a mapping",
	},
	{
		Name: v1beta1.ReasonLoaded, Class: ClassFine,
		Meaning: "the kernel module is live on every desired node",
	},
	{
		Name: v1beta1.ReasonLoading, Class: ClassUnderway,
		Meaning: "some nodes are on their way, and none has failed",
		Next:    "wait; `kubectl get nmc` shows each node",
	},
	{
		Name: v1beta1.ReasonRollingOut, Class: ClassTurn,
		Meaning: "a change goes from node to node, and these nodes wait for their turn with what they have",
		Next:    "wait; the message shows the progress. `spec.rollout.maxUnavailable` sets the pace",
	},
	{
		Name: v1beta1.ReasonVersionLabel, Class: ClassTurn, Step: StepAllowed,
		Meaning: "the Module has a `version` and no `spec.rollout`, so node labels drive its upgrades; these nodes have no label or another one",
		Next: "wait for what drives the upgrade, such as a vendor's operator. If nothing does, set the node's label " +
			"`kmm.node.kubernetes.io/version-module.NAMESPACE.NAME` to `spec.moduleLoader.container.version`, or set `spec.rollout`",
	},
	{
		Name: v1beta1.ReasonUnloading, Class: ClassUnderway,
		Meaning: "the Module is being deleted, or no longer has a `moduleLoader`, and nodes still have it",
		Next:    "wait; a reason that needs attention replaces this one",
	},
	{
		Name: v1beta1.ReasonNoNodes, Class: ClassFine,
		Meaning: "the selector matches no node that Drover can manage",
		Next:    "compare `spec.selector` with the nodes' labels",
	},
	{
		Name: v1beta1.ReasonNotRequested, Class: ClassFine,
		Meaning: "the Module does not ask for this",
	},
	{
		Name: v1beta1.ReasonDevicesReady, Class: ClassFine,
		Meaning: "the plugin is ready on every node with the module",
	},
	{
		Name: v1beta1.ReasonDevicesPending, Class: ClassAwaited,
		Meaning: "the plugin is not ready on some nodes with the module",
		Next:    "run `kubectl describe` on the plugin's pods",
	},
	{
		Name: v1beta1.ReasonImagesAvailable, Class: ClassFine,
		Meaning: "every image that is built or signed in the cluster is there",
	},
	{
		Name: v1beta1.ReasonBuilding, Class: ClassUnderway,
		Meaning: "an image is being built or signed",
		Next: "wait; the image's Job (`kubectl get jobs -l drover.dev/module-image`) shows its steps. If the message says that no " +
			"node takes its pod, or that the cluster refuses it, fix that: a waiting Job is replaced",
	},
	{
		Name: v1beta1.ReasonKernelReady, Class: ClassFine,
		Meaning: "of a `PreflightValidation`: every Module is ready for its kernel",
	},
	{
		Name: v1beta1.ReasonPreflightRunning, Class: ClassAwaited,
		Meaning: "of a `PreflightValidation`: some Modules are still being examined",
		Next:    "wait; the message names them, and `kubectl get moduleimages -A` shows their images",
	},
	{
		Name: v1beta1.ReasonAwaitingDelivery, Class: ClassAwaited, Step: StepDelivered,
		Meaning: "the image's content is on its way to the node",
		Next: "wait; the carrier pod's events show the pull. If it has not started for two minutes, others go first: the command in " +
			"the message shows why (a pull that hangs, a missing network plugin)",
	},
}
