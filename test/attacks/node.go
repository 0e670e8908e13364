// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// nodeAttacks are those of who has a node, and so its kubelet's credentials.
func nodeAttacks() []Attack {
	return []Attack{
		{Who: Kubelet, What: "label another node as ready for a Module", Why: "pods that need the driver would go where it is not",
			Answer: NodeRestriction, Says: "node", Try: func(s *Scene) error {
				mine, other := s.node(kernelVersion), s.node(kernelVersion)
				return s.kubelet(mine).Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", other)}, readyLabel(s.namespace))
			}},
		{Who: Kubelet, What: "take a startup taint off its node", Why: "pods would start before their driver does",
			Answer: NodeRestriction, Says: "taints", Try: func(s *Scene) error {
				mine := s.node(kernelVersion, func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "example.com/nic", Effect: corev1.TaintEffectNoSchedule}}
				})
				return s.kubelet(mine).Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", mine)}, merge(`{"spec":{"taints":null}}`))
			}},
		{Who: Kubelet, What: "read the key that signs kernel modules", Why: "it could sign what every node trusts",
			Answer: NodeAuthorizer, Says: "secrets", Try: func(s *Scene) error {
				s.create(&corev1.Secret{ObjectMeta: meta(s.namespace, "key"), StringData: map[string]string{"key": "secret"}})
				return s.kubelet(s.node(kernelVersion)).Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: "key"}, &corev1.Secret{})
			}},
		{Who: Kubelet, What: "report a kernel whose version is a shell's command",
			Why:    "builds run commands with it, beside the keys of all nodes",
			Answer: Check("kernel-versions"), Says: "InvalidKernelVersion", Try: reportsCommand},
		{Who: Kubelet, What: "get a token of the operator", Why: "it would be root on every node", Answer: NodeAuthorizer,
			Says: "serviceaccounts", Try: func(s *Scene) error {
				return s.token(s.kubelet(s.node(kernelVersion)), env.OperatorNamespace, env.Operator)
			}},
		{Who: Kubelet, What: "get an agent's token that is bound to another node", Why: "it could report for that node",
			Answer: NodeRestriction, Says: "scheduled on a different node", Try: func(s *Scene) error {
				mine, other := s.node(kernelVersion), s.node(kernelVersion)
				s.agentPod(mine)
				return s.agentTokenFor(s.kubelet(mine), s.agentPod(other))
			}},
		{Who: Kubelet, What: "delete a carrier of another node", Why: "that node would never get its driver", Answer: NodeRestriction,
			Says: "spec.nodeName set to itself", Try: func(s *Scene) error {
				return s.kubelet(s.node(kernelVersion)).Delete(s.Context(), s.carrier())
			}},
		{Who: Kubelet, What: "read what other nodes are ordered", Why: "orders name images, pull Secrets and parameters",
			Answer: RBAC, Says: "nodemodulesconfigs", Try: func(s *Scene) error {
				return s.kubelet(s.node(kernelVersion)).List(s.Context(), &v1beta1.NodeModulesConfigList{})
			}},
		{Who: Kubelet, What: "make a mirror pod named as a carrier", Why: "the agent takes what a carrier exports for the image's content",
			Answer: Policy("drover-carriers"), Says: "made by Drover's operator only", Try: func(s *Scene) error {
				mine := s.node(kernelVersion)
				pod := &corev1.Pod{ObjectMeta: meta(s.namespace, delivery.Carrier(s.request()).Name), Spec: corev1.PodSpec{
					NodeName: mine, Containers: []corev1.Container{{Name: "export", Image: env.AgentImage}},
				}}
				node := &corev1.Node{}
				s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: mine}, node))
				pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
				pod.OwnerReferences = ownedBy(node)
				return s.kubelet(mine).Create(s.Context(), pod)
			}},
	}
}

// reportsCommand ends as soon as the operator builds for the kernel or brings an image for it, or
// says why it does not.
func reportsCommand(s *Scene) error {
	mine := s.node(kernelVersion)
	s.must(s.kubelet(mine).Status().Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", mine)},
		merge(`{"status":{"nodeInfo":{"kernelVersion":"6.1.0-44$(touch /tmp/x)-amd64"}}}`)))
	return s.decided(s.module(), v1beta1.ReasonInvalidKernelVersion)
}

// labelAttacks say of a node, by its own kubelet, what only the operator may say.
func labelAttacks() []Attack {
	policy, comes := Policy("drover-kubelets"), "each Module's plugin pod, its token and its Secrets would come to the node"
	own := func(patch func(*Scene) client.Patch, status bool) func(*Scene) error {
		return func(s *Scene) error {
			mine := s.node(kernelVersion)
			node := &corev1.Node{ObjectMeta: meta("", mine)}
			if status {
				return s.kubelet(mine).Status().Patch(s.Context(), node, patch(s))
			}
			return s.kubelet(mine).Patch(s.Context(), node, patch(s))
		}
	}
	ready := func(s *Scene) client.Patch { return readyLabel(s.namespace) }
	return []Attack{
		{Who: Kubelet, What: "label its own node as ready for a Module", Why: comes, Answer: policy, Try: own(ready, false)},
		{Who: Kubelet, What: "do so through the node's status", Why: comes, Answer: policy, Try: own(ready, true)},
		{Who: Kubelet, What: "label its own node as one where a Module's device plugin is ready", Why: comes, Answer: policy,
			Try: own(func(s *Scene) client.Patch {
				return merge(`{"metadata":{"labels":{%q:""}}}`, v1beta1.DevicePluginReadyLabel(s.namespace, "nic"))
			}, false)},
		{Who: Kubelet, What: "annotate its own node, so that checks are skipped", Why: "checks are an administrator's to skip", Answer: policy,
			Try: own(func(*Scene) client.Patch {
				return merge(`{"metadata":{"annotations":{%q:""}}}`, v1beta1.SkipChecksAnnotation)
			}, false)},
		{Who: Kubelet, What: "register its node with the label of a ready Module", Why: comes, Answer: policy, Try: func(s *Scene) error {
			name := s.namespace + "-new"
			node := &corev1.Node{ObjectMeta: meta("", name)}
			node.Labels = map[string]string{v1beta1.ReadyLabel(s.namespace, "nic"): ""}
			return s.kubelet(name).Create(s.Context(), node)
		}},
	}
}

// agentPod is the agent's pod on a node.
func (s *Scene) agentPod(node string) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: meta(env.OperatorNamespace, "agent-"+node), Spec: corev1.PodSpec{
		NodeName: node, ServiceAccountName: env.Agent, Containers: []corev1.Container{{Name: "agent", Image: env.AgentImage}},
	}}
	s.create(pod)
	return pod
}

// agentTokenFor asks for a token of the agent that is bound to a pod.
func (s *Scene) agentTokenFor(c client.Client, pod *corev1.Pod) error {
	return c.SubResource("token").Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: meta(env.OperatorNamespace, env.Agent)},
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}})
}

// ownedBy is what NodeRestriction wants of a mirror pod.
func ownedBy(node *corev1.Node) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true)}}
}

// agentAttacks are those of who has the token of a node's agent.
func agentAttacks() []Attack {
	status, others := Policy("drover-agent-status"), "what one node says would decide about another"
	return []Attack{
		{Who: Agent, What: "report for another node", Why: others, Answer: status, Says: "may not write the status of node",
			Try: func(s *Scene) error {
				mine, other := s.node(kernelVersion), s.configured()
				return s.report(s.agent(mine), other, `{"artifacts":[{"id":"a","digest":"b"}]}`)
			}},
		{Who: Agent, What: "report with a token that is bound to no node", Why: others, Answer: status, Says: `the agent on node ""`,
			Try: func(s *Scene) error {
				return s.report(s.env.Client(s, s.config(env.Agent)), s.configured(), `{"artifacts":[{"id":"a","digest":"b"}]}`)
			}},
		{Who: Agent, What: "order its node to load a kernel module", Why: "orders are the operator's alone, by Modules", Answer: RBAC,
			Says: "nodemodulesconfigs", Try: func(s *Scene) error {
				node := s.configured()
				return s.agent(node).Patch(s.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: meta("", node)}, merge(`{"spec":{"modules":[]}}`))
			}},
		{Who: Agent, What: "label its node as ready for a Module", Why: "pods and their Secrets would come to it",
			Answer: RBAC, Says: `resource "nodes"`,
			Try: func(s *Scene) error {
				node := s.node(kernelVersion)
				return s.agent(node).Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", node)}, readyLabel(s.namespace))
			}},
		{Who: Agent, What: "read Secrets", Why: "it needs none: kubelets pull", Answer: RBAC, Says: "secrets", Try: func(s *Scene) error {
			return s.agent(s.node(kernelVersion)).List(s.Context(), &corev1.SecretList{}, client.InNamespace(env.OperatorNamespace))
		}},
		{Who: Agent, What: "evict a pod", Why: "evictions are the operator's alone", Answer: RBAC, Says: "pods/eviction",
			Try: func(s *Scene) error {
				return evict(s, s.agent(s.node(kernelVersion)))
			}},
		{Who: Agent, What: "bind a role to itself", Why: "it would be what it likes", Answer: RBAC, Says: "clusterrolebindings",
			Try: func(s *Scene) error {
				return s.agent(s.node(kernelVersion)).Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", s.namespace),
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}})
			}},
	}
}

// configured is a node that has orders.
func (s *Scene) configured() string {
	s.Helper()
	node := s.node(kernelVersion)
	s.create(&v1beta1.NodeModulesConfig{ObjectMeta: meta("", node)})
	return node
}

// report writes the status of a node.
func (s *Scene) report(c client.Client, node, status string) error {
	return c.Status().Patch(s.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: meta("", node)}, merge(`{"status":%s}`, status))
}
