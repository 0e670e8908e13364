// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/testkit/env"
)

// operatorAttacks are those of who has stolen the operator's token.
func operatorAttacks() []Attack {
	anything := "it would run anything, under any ServiceAccount, on any node"
	carriers := Policy("drover-carriers")
	return append([]Attack{
		{Who: OperatorToken, What: "create a pod that is no carrier", Why: anything,
			Answer: carriers, Says: "no pods but those named drover-carrier-*",
			Try: makes(func(p *corev1.Pod) { p.Name = "backdoor" })},
		{Who: OperatorToken, What: "create a privileged carrier", Why: anything, Answer: carriers, Says: "drop all capabilities",
			Try: makes(func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext.Privileged, p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = ptr.To(true), nil
			})},
		{Who: OperatorToken, What: "create a carrier that mounts the node's disk", Why: anything,
			Answer: carriers, Says: "image and emptyDir volumes only",
			Try: makes(func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "host",
					VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
			})},
		{Who: OperatorToken, What: "create a carrier that mounts a Secret", Why: "it would read Secrets that it may not get",
			Answer: carriers,
			Says:   "image and emptyDir volumes only", Try: makes(func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s",
					VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}})
			})},
		{Who: OperatorToken, What: "create a carrier with the token of a ServiceAccount", Why: "it would act as any ServiceAccount",
			Answer: carriers,
			Says:   "a carrier has no token", Try: makes(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil })},
		{Who: OperatorToken, What: "create a carrier that runs another image", Why: anything, Answer: Policy("drover-carrier-image"),
			Says: "a carrier runs " + env.AgentImage,
			Try:  makes(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil.example.com/e:1" })},
		{Who: OperatorToken, What: "change the image of a tenant's pod", Why: anything, Answer: Policy("drover-operator-pods"),
			Says: "only takes KMM's finalizer off", Try: func(s *Scene) error {
				return s.operator().Patch(s.Context(), s.app(), strategic(`{"spec":{"containers":[{"name":"main","image":"evil.example.com/e:1"}]}}`))
			}},
		{Who: OperatorToken, What: "label a tenant's pod, so that a Service chooses it", Why: "traffic would go where its owner did not send it",
			Answer: Policy("drover-operator-pods"), Says: "only takes KMM's finalizer off", Try: func(s *Scene) error {
				return s.operator().Patch(s.Context(), s.app(), merge(`{"metadata":{"labels":{"app":"bank"}}}`))
			}},
	}, operatorRights()...)
}

// operatorRights are attempts at what the operator's role does not grant.
func operatorRights() []Attack {
	return []Attack{
		{Who: OperatorToken, What: "read Secrets", Why: "keys and passwords are the pods' that mount them", Answer: RBAC, Says: "secrets",
			Try: func(s *Scene) error {
				return s.operator().List(s.Context(), &corev1.SecretList{}, client.InNamespace(s.namespace))
			}},
		{Who: OperatorToken, What: "run a command in a pod", Why: "it would act as that pod", Answer: RBAC, Says: "pods/exec",
			Try: func(s *Scene) error {
				return s.connects(s.config(env.Operator), s.app(), "exec")
			}},
		{Who: OperatorToken, What: "get a token of another ServiceAccount", Why: "it would act as any",
			Answer: RBAC, Says: "serviceaccounts/token",
			Try: func(s *Scene) error {
				return s.token(s.operator(), env.OperatorNamespace, env.Agent)
			}},
		{Who: OperatorToken, What: "bind a role to itself", Why: "it would be what it likes", Answer: RBAC, Says: "clusterrolebindings",
			Try: func(s *Scene) error {
				return s.operator().Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", s.namespace),
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}})
			}},
		{Who: OperatorToken, What: "delete the policy that seals carriers", Why: "what it may not do would be its own choice",
			Answer: RBAC,
			Says:   "validatingadmissionpolicybindings", Try: func(s *Scene) error {
				binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta("", "drover-carriers")}
				return s.operator().Delete(s.Context(), binding, client.DryRunAll)
			}},
		{Who: OperatorToken, What: "say which image carriers run", Why: "carriers would run another program",
			Answer: RBAC, Says: "configmaps",
			Try: func(s *Scene) error {
				return s.operator().Patch(s.Context(), &corev1.ConfigMap{ObjectMeta: meta(env.OperatorNamespace, "drover-images")},
					merge(`{"data":{"agent":"evil.example.com/e:1"}}`), client.DryRunAll)
			}},
		{Who: OperatorToken, What: "act as the cluster's administrator", Why: "it would be what it likes",
			Answer: RBAC, Says: "impersonate",
			Try: func(s *Scene) error {
				config := s.config(env.Operator)
				config.Impersonate = rest.ImpersonationConfig{UserName: "admin", Groups: []string{"system:masters"}}
				set, err := kubernetes.NewForConfig(config)
				s.must(err)
				_, err = set.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{})
				return err
			}},
		{Who: OperatorToken, What: "report for a node", Why: "the status is what was seen, and the agents' alone", Answer: RBAC,
			Says: "nodemodulesconfigs/status", Try: func(s *Scene) error {
				return s.report(s.operator(), s.configured(), `{"artifacts":[{"id":"a","digest":"b"}]}`)
			}},
		{Who: OperatorToken, What: "delete a node", Why: "its pods would go with it", Answer: RBAC, Says: `resource "nodes"`,
			Try: func(s *Scene) error {
				return s.operator().Delete(s.Context(), &corev1.Node{ObjectMeta: meta("", s.node(kernelVersion))})
			}},
		{Who: OperatorToken, What: "write a ModulePolicy", Why: "its limits are an administrator's to say",
			Answer: RBAC, Says: "modulepolicies",
			Try: func(s *Scene) error {
				return s.operator().Create(s.Context(), &v1alpha1.ModulePolicy{ObjectMeta: meta("", s.namespace),
					Spec: v1alpha1.ModulePolicySpec{Mode: v1alpha1.PolicyAudit}})
			}},
	}
}

// makes creates a carrier that is changed.
func makes(change func(*corev1.Pod)) func(*Scene) error {
	return func(s *Scene) error {
		pod := delivery.Carrier(s.request())
		change(pod)
		return s.operator().Create(s.Context(), pod)
	}
}

// app is a pod of the tenant's.
func (s *Scene) app() *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: meta(s.namespace, "app"), Spec: corev1.PodSpec{
		NodeName: s.node(kernelVersion), Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app:1"}},
	}}
	s.create(pod)
	return pod
}

func evict(s *Scene, c client.Client) error {
	pod := s.app()
	return c.SubResource("eviction").Create(s.Context(), pod, &policyv1.Eviction{ObjectMeta: meta(pod.Namespace, pod.Name)})
}
