// SPDX-License-Identifier: Apache-2.0

package reasons

import "github.com/drover-project/drover/api/kmm/v1beta1"

// well are the reasons where all is well, or on its way.
var well = []Reason{
	{
		Name: v1beta1.ReasonReady, Class: ClassFine,
		Meaning: "everything the Module asks for is there",
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
		Meaning: "some nodes are on their way, none has failed",
		Next:    "wait; `kubectl get nmc` shows each node",
	},
	{
		Name: v1beta1.ReasonRollingOut, Class: ClassTurn,
		Meaning: "a change goes from node to node, and these nodes wait for their turn with what they have",
		Next:    "wait; the message says how far it is. `spec.rollout.maxUnavailable` sets the pace",
	},
	{
		Name: v1beta1.ReasonVersionLabel, Class: ClassTurn, Step: StepAllowed,
		Meaning: "the Module has a `version` and no `spec.rollout`: node labels drive its upgrades, as upstream, and the label of " +
			"these nodes names another version or none",
		Next: "wait for what drives the upgrade, such as a vendor's operator. If nothing does, set " +
			"`kmm.node.kubernetes.io/version-module.NAMESPACE.NAME` on the node to `spec.moduleLoader.container.version`, or set " +
			"`spec.rollout`",
	},
	{
		Name: v1beta1.ReasonUnloading, Class: ClassUnderway,
		Meaning: "the Module is being deleted, or has no `moduleLoader` any more, and nodes still have it",
		Next:    "wait; what holds a node up takes the place of this reason",
	},
	{
		Name: v1beta1.ReasonNoNodes, Class: ClassFine,
		Meaning: "the selector chooses no eligible node",
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
		Meaning: "the plugin is not ready on some node with the module",
		Next:    "`kubectl describe` the plugin's pods",
	},
	{
		Name: v1beta1.ReasonImagesAvailable, Class: ClassFine,
		Meaning: "every image that is built or signed in the cluster is there",
	},
	{
		Name: v1beta1.ReasonBuilding, Class: ClassUnderway,
		Meaning: "an image is being built or signed",
		Next: "wait; the image's Job (`kubectl get jobs -l drover.dev/module-image`) shows its steps. If the message says that no " +
			"node takes its pod, or that the cluster admits none, mend that: a Job that waits is replaced",
	},
	{
		Name: v1beta1.ReasonKernelReady, Class: ClassFine,
		Meaning: "of a `PreflightValidation`: every Module is ready for its kernel",
	},
	{
		Name: v1beta1.ReasonPreflightRunning, Class: ClassAwaited,
		Meaning: "of a `PreflightValidation`: some Modules are still looked at",
		Next:    "wait; the message names them, and `kubectl get moduleimages -A` shows their images",
	},
	{
		Name: v1beta1.ReasonAwaitingDelivery, Class: ClassAwaited, Step: StepDelivered,
		Meaning: "the image's content is on its way to the node",
		Next: "wait; the carrier pod's events show the pull. If the message says that it has not started for two minutes, others " +
			"go on before it: the command in the message shows why (a pull that hangs, a network plugin that is not there)",
	},
}
