// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// tenantAttacks are those of people with the built-in role edit, and nothing of Drover's, in a
// namespace.
func tenantAttacks() []Attack {
	carriers, sealed := Policy("drover-carriers"), "the agent takes what a carrier exports for the image's content"
	rows := append([]Attack{
		{Who: Tenant, What: "create a pod named as a carrier", Why: sealed, Answer: carriers,
			Says: "made by Drover's operator only", Try: forgeCarrier(func(p *corev1.Pod) {})},
		{Who: Tenant, What: "create one by `generateName`", Why: sealed, Answer: carriers,
			Says: "made by Drover's operator only",
			Try:  forgeCarrier(func(p *corev1.Pod) { p.Name, p.GenerateName = "", v1beta1.CarrierPrefix })},
		{Who: Tenant, What: "run a command in a carrier", Why: sealed, Answer: carriers,
			Says: "no exec, attach, port-forward or proxy", Try: connect("exec")},
		{Who: Tenant, What: "attach to a carrier", Why: sealed, Answer: carriers,
			Says: "no exec, attach, port-forward or proxy", Try: connect("attach")},
		{Who: Tenant, What: "forward a port of a carrier", Why: sealed, Answer: carriers,
			Says: "no exec, attach, port-forward or proxy", Try: connect("portforward")},
		{Who: Tenant, What: "reach a carrier by the API server's proxy", Why: sealed, Answer: carriers,
			Says: "no exec, attach, port-forward or proxy", Try: connect("proxy")},
		{Who: Tenant, What: "change the image of a carrier", Why: sealed, Answer: carriers,
			Says: "carriers are sealed", Try: func(s *Scene) error {
				return s.tenant().Patch(s.Context(), s.carrier(),
					strategic(`{"spec":{"containers":[{"name":"export","image":"evil.example.com/e:1"}]}}`))
			}},
		{Who: Tenant, What: "tell the agent another delivery by a carrier's annotation", Why: "it would take one image's content for another's",
			Answer: carriers, Says: "carriers are sealed", Try: func(s *Scene) error {
				return s.tenant().Patch(s.Context(), s.carrier(), merge(`{"metadata":{"annotations":{"drover.dev/delivery":"0000000000000000"}}}`))
			}},
	}, tenantWrites()...)
	return append(rows, Attack{Who: Debugger, What: "add an ephemeral container to a carrier", Why: sealed, Answer: carriers,
		Says: "no ephemeral containers", Try: debug})
}

// tenantWrites are attempts at what a tenant has no right to.
func tenantWrites() []Attack {
	kernels := "it would choose what runs in nodes' kernels"
	return []Attack{
		{Who: Tenant, What: "create a Module", Why: kernels, Answer: RBAC, Says: "modules.kmm.sigs.x-k8s.io", Try: func(s *Scene) error {
			return s.tenant().Create(s.Context(), s.module())
		}},
		{Who: Tenant, What: "order a node to load a kernel module", Why: kernels, Answer: RBAC,
			Says: "nodemodulesconfigs.kmm.sigs.x-k8s.io", Try: func(s *Scene) error {
				return s.tenant().Create(s.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: meta("", s.node(kernelVersion))})
			}},
		{Who: Tenant, What: "say that an image is built", Why: kernels, Answer: RBAC, Says: "moduleimages.drover.dev",
			Try: func(s *Scene) error {
				image := &v1alpha1.ModuleImage{ObjectMeta: meta(s.namespace, "image")}
				return s.tenant().Status().Patch(s.Context(), image, merge(`{"status":{"image":"evil.example.com/nic:1"}}`))
			}},
		{Who: Tenant, What: "write a ModulePolicy", Why: "it would allow itself what it likes", Answer: RBAC,
			Says: "modulepolicies.drover.dev", Try: func(s *Scene) error {
				return s.tenant().Create(s.Context(), &v1alpha1.ModulePolicy{ObjectMeta: meta("", s.namespace),
					Spec: v1alpha1.ModulePolicySpec{Mode: v1alpha1.PolicyAudit}})
			}},
		{Who: Tenant, What: "relabel its namespace, so that no ModulePolicy chooses it", Why: "it would be free of every limit",
			Answer: RBAC,
			Says:   `resource "namespaces"`, Try: func(s *Scene) error {
				return s.tenant().Patch(s.Context(), &corev1.Namespace{ObjectMeta: meta("", s.namespace)},
					merge(`{"metadata":{"labels":{"team":null}}}`))
			}},
		{Who: Tenant, What: "label a node as ready for a Module", Why: "pods that need the driver would go where it is not", Answer: RBAC,
			Says: `resource "nodes"`, Try: func(s *Scene) error {
				return s.tenant().Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", s.node(kernelVersion))}, readyLabel(s.namespace))
			}},
		{Who: Tenant, What: "have the agent's token made for itself", Why: "it could report for a node", Answer: RBAC,
			Says: "serviceaccounts/token", Try: func(s *Scene) error {
				return s.token(s.tenant(), env.OperatorNamespace, env.Agent)
			}},
	}
}

// debug has what edit has, and the right to add ephemeral containers, which edit lacks.
func debug(s *Scene) error {
	const role = "attacks-debug"
	err := s.admin.Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: meta("", role), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/ephemeralcontainers"}, Verbs: []string{"patch"}},
	}})
	s.must(client.IgnoreAlreadyExists(err))
	return s.user(false, append(s.aggregated(), role)...).SubResource("ephemeralcontainers").Patch(s.Context(), s.carrier(),
		strategic(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"evil.example.com/e:1"}]}}`))
}

// readyLabel labels a node as ready for a Module of the namespace.
func readyLabel(namespace string) client.Patch {
	return merge(`{"metadata":{"labels":{%q:""}}}`, v1beta1.ReadyLabel(namespace, "nic"))
}

// request is what the operator makes a carrier of.
func (s *Scene) request() *delivery.Request {
	s.Helper()
	r := s.delivery()
	s.create(s.module(func(m *v1beta1.Module) {
		m.Name, m.Spec.ModuleLoader, m.Spec.Selector = "resident", nil, map[string]string{"drover.dev/no-node": ""}
	}))
	operator := s.operator()
	s.must(kube.Known(s.Context(), func() error { return operator.Create(s.Context(), delivery.Carrier(r), client.DryRunAll) }))
	return r
}

func (s *Scene) delivery() *delivery.Request {
	m := s.module()
	m.UID = "4a1f6a5e-0000-4000-8000-000000000001"
	return &delivery.Request{
		Module: m, ID: "0123456789abcdef", Node: "node-1", Mode: delivery.ModeImageVolume, AgentImage: env.AgentImage,
		Config: &v1beta1.ModuleConfig{KernelVersion: kernelVersion, ContainerImage: "registry.example.com/nic:1",
			Modprobe: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"}},
	}
}

// carrier is one that the operator has made.
func (s *Scene) carrier() *corev1.Pod {
	s.Helper()
	pod := delivery.Carrier(s.request())
	s.must(s.operator().Create(s.Context(), pod))
	return pod
}

func forgeCarrier(change func(*corev1.Pod)) func(*Scene) error {
	return func(s *Scene) error {
		pod := delivery.Carrier(s.request())
		pod.OwnerReferences = nil
		change(pod)
		return s.tenant().Create(s.Context(), pod)
	}
}

func connect(subresource string) func(*Scene) error {
	return func(s *Scene) error {
		tenant, pod := s.tenant(), s.carrier()
		s.must(tenant.Get(s.Context(), client.ObjectKeyFromObject(pod), pod))
		return s.connects(s.env.UserConfig(s, userOf(s.namespace)), pod, subresource)
	}
}

// connects asks for a connection to a pod. That nothing listens on the node comes after the last
// check.
func (s *Scene) connects(config *rest.Config, pod *corev1.Pod, subresource string) error {
	s.Helper()
	set, err := kubernetes.NewForConfig(config)
	s.must(err)
	err = set.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource(subresource).
		Param("command", "id").Param("stdout", "true").Do(s.Context()).Error()
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return err
	}
	return nil
}
