// SPDX-License-Identifier: Apache-2.0

package security

// meaning says in plain words what a right is power over.
type meaning struct {
	// role that has it; "" is any role without a row of its own.
	role string
	// on is the kind of objects.
	on string
	// writes: the row is of a role that may change them.
	writes bool
	says   string
}

const operator, hub, ooto = "drover-operator", "drover-hub", "drover-operator-ooto"

// meanings has a row for each right that is granted, and no other: both is checked.
var meanings = []meaning{
	// What many have.
	{"", "events.events.k8s.io", true, "Tells in events what it does. It cannot read others' events."},
	{"", "events", true, "Says by an event who leads."},
	{"", "leases.coordination.k8s.io", true, "Elects a leader. Who may write these Leases can keep the operators of this namespace from working."},
	{"", "customresourcedefinitions.apiextensions.k8s.io", false, "Sees whether the definitions are those of its version."},
	{"", "modules.kmm.sigs.x-k8s.io", false, "Sees what shall be loaded, with parameters and images: put no Secrets into parameters."},
	{"", "modules.kmm.sigs.x-k8s.io/status", false, "Sees how Modules stand."},
	{"", "nodes", false, "Sees nodes, with labels, addresses and kernels."},

	// The operator.
	{operator, "pods", true, "Makes carriers, and ends carriers and plugin pods. **Creating pods in Modules' namespaces is power over what they may mount, " +
		"and over the ServiceAccounts there.** The policy `drover-carriers` admits carriers only. Deleting reaches every pod of the cluster."},
	{operator, "daemonsets.apps", true, "Runs device plugins and DRA drivers. **A DaemonSet can run any pod under any ServiceAccount of its namespace, " +
		"privileged where Pod Security allows it, and mount any Secret there.** No policy of ours limits that."},
	{operator, "jobs.batch", true, "Has images built and signed. **A Job's pods may be what a DaemonSet's may.** No policy of ours limits that."},
	{operator, "serviceaccounts", true, "Makes one for each Module with a workload that names none. It gets no rights from Drover (on OpenShift: see there). " +
		"Deleting reaches every ServiceAccount of the cluster."},
	{operator, "pods/eviction", true, "Empties nodes for `spec.rollout.drain`. Evictions respect PodDisruptionBudgets, and reach every pod of the cluster."},
	{operator, "nodes", true, "Writes labels, takes off startup taints, cordons. **Labels and taints decide which pods, and which Secrets, come to a node.**"},
	{operator, "nodemodulesconfigs.kmm.sigs.x-k8s.io", true, "Gives orders to agents: **this is kernel code on every node**, from any image that a node can pull."},
	{operator, "modules.kmm.sigs.x-k8s.io", true, "Writes finalizers and annotations. RBAC cannot say \"metadata only\": it could change what is loaded, too."},
	{operator, "modules.kmm.sigs.x-k8s.io/finalizers", true, "Makes objects that keep their Module from going before them."},
	{operator, "modules.kmm.sigs.x-k8s.io/status", true, "Says how Modules stand."},
	{operator, "preflightvalidations.kmm.sigs.x-k8s.io/status", true, "Says whether Modules are ready for a kernel."},
	{operator, "preflightvalidations.kmm.sigs.x-k8s.io", false, "Sees what is asked."},
	{operator, "moduleimages.drover.dev", true, "Asks itself for images that Modules name."},
	{operator, "moduleimages.drover.dev/finalizers", true, "Makes Jobs that keep their ModuleImage from going before them."},
	{operator, "moduleimages.drover.dev/status", true, "Says how images stand."},
	{operator, "deviceclasses.resource.k8s.io", true, "Makes the DeviceClasses of DRA drivers. Deleting reaches every DeviceClass: claims of others would find none."},
	{operator, "devicetaintrules.resource.k8s.io", true, "Keeps pods off devices of nodes that change. It can keep pods off every device, also those of others."},
	{operator, "resourceclaims.resource.k8s.io", false, "Sees where devices are in use."},
	{operator, "resourceslices.resource.k8s.io", false, "Sees which devices a driver offers."},
	{operator, "configmaps", false, "Reads Dockerfiles, sources and settings of builds. **RBAC cannot say which: it can read every ConfigMap of the cluster.**"},
	{operator, "leases.coordination.k8s.io", false, "Sees whether Kernel Module Management leads, to stay away from its nodes."},
	{operator, "subjectaccessreviews.authorization.k8s.io", true, "Asks what another operator is allowed, to tell whether it works on the same objects. Nothing is changed by it."},
	{operator, "validatingadmissionpolicies.admissionregistration.k8s.io", false, "Sees whether the policies that seal carriers and statuses are there: without them it delivers nothing."},
	{operator, "validatingadmissionpolicybindings.admissionregistration.k8s.io", false, "The same, of their bindings."},

	// The agent.
	{"drover-agent", "nodemodulesconfigs.kmm.sigs.x-k8s.io/status", true, "Reports. The policy `drover-agent-status` admits the status of the agent's own node only."},
	{"drover-agent", "nodemodulesconfigs.kmm.sigs.x-k8s.io", false, "Reads its orders. RBAC cannot say \"the one named like your node\": " +
		"it can read those of all nodes ([more](privileges.md#what-limits-it))."},
	{"drover-agent", "namespaces", false, "Tells by this namespace's UID whether a node has come to another cluster."},

	// A hub.
	{hub, "manifestworks.work.open-cluster-management.io", true, "Brings Modules to clusters. **A ManifestWork can bring a cluster whatever its work agent may apply:** " +
		"this is power over every managed cluster."},
	{hub, "secrets", false, "Reads the kubeconfigs of clusters that it reaches directly. **It can read every Secret of its own namespace:** put no others there."},
	{hub, "managedclustermodules.hub.kmm.sigs.x-k8s.io", true, "Writes finalizers. It could change what clusters load, too."},
	{hub, "managedclustermodules.hub.kmm.sigs.x-k8s.io/status", true, "Says how clusters stand."},
	{hub, "managedclusters.cluster.open-cluster-management.io", false, "Sees the clusters, their labels and kernels."},
	{hub, "jobs.batch", true, "Has images built and signed. **A Job can run any pod under any ServiceAccount of its namespace, and mount any Secret there.**"},
	{hub, "moduleimages.drover.dev", true, "Asks itself for the images that ManagedClusterModules name."},
	{hub, "moduleimages.drover.dev/finalizers", true, "Makes Jobs that keep their ModuleImage from going before them."},
	{hub, "moduleimages.drover.dev/status", true, "Says how images stand."},
	{hub, "configmaps", false, "Reads Dockerfiles and sources. **It can read every ConfigMap of the hub's cluster.**"},
	{hub, "pods", false, "Sees how the pods of Jobs end. It can see every pod's spec, not logs."},
	{hub, "serviceaccounts", false, "Reads which pull Secrets a Job's ServiceAccount names; not the Secrets."},
	{hub, "namespaces", false, "Tells by this namespace's UID which hub it is."},

	// A spoke.
	{"drover-claims", "clusterclaims.cluster.open-cluster-management.io", true, "Tells the hub which kernels the nodes run."},
	{"drover-claims", "configmaps", true, "The same, for a hub that comes directly. It can write every ConfigMap of Drover's namespace, " +
		"also the one that says which image carriers run."},
	{"drover-hub-access", "modules.kmm.sigs.x-k8s.io", true, "What a hub may do here: **kernel code on every node**, by Modules."},
	{"drover-hub-access", "configmaps", false, "Which kernels the nodes run: what the operator has written."},
	{"drover-work-agent", "modules.kmm.sigs.x-k8s.io", true, "What Open Cluster Management's work agent may do, with its other rights: **kernel code on every node**."},

	// The older group.
	{ooto, "modules.kmm.sigs.x-k8s.io", true, "Makes Modules from those of `ooto.sigs.k8s.io`: who may write those has the power of a Module's editor."},
	{ooto, "configmaps", true, "Makes the ConfigMap of a Dockerfile that stands in a Module. Deleting reaches every ConfigMap of the cluster."},
	{ooto, "modules.ooto.sigs.k8s.io", false, "Sees what is asked."},
	{ooto, "modules.ooto.sigs.k8s.io/finalizers", true, "Makes objects that keep their Module from going before them."},
	{ooto, "modules.ooto.sigs.k8s.io/status", true, "Says how Modules stand."},

	// OpenShift.
	{"drover-operator-openshift", "rolebindings.rbac.authorization.k8s.io", true, "Lets a Module's own ServiceAccount run privileged pods. It can bind no other role " +
		"with more than it has itself. Deleting reaches every RoleBinding that it knows by name."},
	{"drover-operator-openshift", "clusterroles.rbac.authorization.k8s.io", true, "May give away this one role, which it does not have."},

	// Device operators.
	{"metrics-auth-role", "tokenreviews.authentication.k8s.io", true, "Asks who reads metrics. Nothing is changed by it."},
	{"metrics-auth-role", "subjectaccessreviews.authorization.k8s.io", true, "Asks whether they may. Nothing is changed by it."},
	{"metrics-reader", "/metrics", false, "Reads metrics. For Prometheus."},
	{"deviceconfig-operator-manager-role", "modules.kmm.sigs.x-k8s.io", true, "Makes Modules: **kernel code on every node**."},
	{"deviceconfig-operator-manager-role", "serviceaccounts", true, "Makes those of its Modules. Deleting reaches every ServiceAccount of the cluster."},
	{"deviceconfig-operator-manager-role", "deviceconfigs.example.com", true, "Writes finalizers. It could change the wish, too."},
	{"deviceconfig-operator-manager-role", "deviceconfigs.example.com/finalizers", true, "Makes Modules that keep their DeviceConfig from going before them."},
	{"deviceconfig-operator-manager-role", "deviceconfigs.example.com/status", true, "Says how DeviceConfigs stand."},
	{"ptemplate-operator-manager-role", "modules.kmm.sigs.x-k8s.io", true, "Makes Modules: **kernel code on every node**."},
	{"ptemplate-operator-manager-role", "daemonsets.apps", true, "Runs the pods that use the devices. **A DaemonSet can run any pod under any ServiceAccount of its namespace.**"},
	{"ptemplate-operator-manager-role", "pods", false, "Sees on which nodes they are ready."},
	{"ptemplate-operator-manager-role", "ptemplates.pt.example.com", false, "Sees what is asked."},
	{"ptemplate-operator-manager-role", "ptemplates.pt.example.com/finalizers", true, "Makes objects that keep their Ptemplate from going before them."},
	{"ptemplate-operator-manager-role", "ptemplates.pt.example.com/status", true, "Says how Ptemplates stand."},
	{"lolcow-operator-manager-role", "deployments.apps", true, "Runs the web page. **A Deployment can run any pod under any ServiceAccount of its namespace.**"},
	{"lolcow-operator-manager-role", "services", true, "Makes the page's Service. Deleting reaches every Service of the cluster."},
	{"lolcow-operator-manager-role", "lolcows.my.domain", false, "Sees what is asked."},
	{"lolcow-operator-manager-role", "lolcows.my.domain/finalizers", true, "Makes objects that keep their Lolcow from going before them."},
	{"lolcow-operator-manager-role", "lolcows.my.domain/status", true, "Says how Lolcows stand."},
	{"lolcow-operator-manager-role", "lolcowworkspaces.my.domain", true, "Keeps one for each Lolcow."},

	// Roles for people.
	{"", "modules.kmm.sigs.x-k8s.io", true, "**Kernel code on every node that a Module selects. Give it like root on nodes.** With a device plugin: " +
		"privileged pods in the namespace, where Pod Security allows them."},
	{"", "modules.ooto.sigs.k8s.io", true, "The same, in the older group."},
	{"", "modules.ooto.sigs.k8s.io", false, "Sees Modules of the older group."},
	{"", "modules.ooto.sigs.k8s.io/status", false, "Sees how they stand."},
	{"", "moduleimages.drover.dev", false, "Sees which images are made."},
	{"", "moduleimages.drover.dev/status", false, "Sees how images stand, with the last lines of a failed build."},
	{"", "nodemodulesconfigs.kmm.sigs.x-k8s.io", false, "Sees what each node shall have."},
	{"", "nodemodulesconfigs.kmm.sigs.x-k8s.io/status", false, "Sees what each kernel holds."},
	{"", "preflightvalidations.kmm.sigs.x-k8s.io", false, "Sees what is asked about kernels."},
	{"", "preflightvalidations.kmm.sigs.x-k8s.io", true, "Asks about kernels. This can start builds, as Modules say them; it puts nothing into a kernel."},
	{"", "preflightvalidations.kmm.sigs.x-k8s.io/status", false, "Sees the answers."},
	{"", "managedclustermodules.hub.kmm.sigs.x-k8s.io", true, "**Kernel code on every node of every cluster that is selected.**"},
	{"", "managedclustermodules.hub.kmm.sigs.x-k8s.io", false, "Sees what clusters load."},
	{"", "deviceconfigs.example.com", true, "**Kernel code on the nodes that are selected.**"},
	{"", "deviceconfigs.example.com", false, "Sees DeviceConfigs."},
	{"", "deviceconfigs.example.com/status", false, "Sees how they stand."},
	{"", "ptemplates.pt.example.com", true, "**Kernel code on the nodes that are selected**, and pods in the namespace."},
	{"", "ptemplates.pt.example.com", false, "Sees Ptemplates."},
	{"", "ptemplates.pt.example.com/status", false, "Sees how they stand."},
	{"", "lolcows.my.domain", true, "A web page in the namespace, from an image of one's choice."},
	{"", "lolcows.my.domain", false, "Sees Lolcows."},
	{"", "lolcows.my.domain/status", false, "Sees how they stand."},
	{"", "securitycontextconstraints.security.openshift.io", true, "Pods under these constraints. `drover-workload` and `drover-build` are root on the node, or near it."},
}

// policies says what each admission policy is for.
var policies = map[string]string{
	"drover-agent-status":       "An agent writes the status of its own node's NodeModulesConfig, and nobody else writes any.",
	"drover-carriers":           "Only the operator makes carriers, it makes no other pods by itself, and nobody changes them, runs anything in them or connects to them.",
	"drover-carrier-image":      "A carrier's program is the agent's image, and no other.",
	"drover-modules":            "A Module that makes no sense is refused: unknown variables, files outside of its folder, volumes that are ours, host paths beyond five folders.",
	"drover-module-annotations": "Times in annotations are times.",
	"drover-namespaces":         "A namespace that holds Modules is not deleted.",
	"drover-ooto":               "Warns of fields that have no meaning here.",
}
