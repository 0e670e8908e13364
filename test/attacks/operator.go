// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/agentpod"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
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

// forgedAttacks make what the operator's role lets it make, but not as the operator makes it.
func forgedAttacks() []Attack {
	anything := "it would run anything, under any ServiceAccount, on any node"
	workloads, as := Policy("drover-operator-workloads"), Policy("drover-daemonsets-of-modules")
	strange, deletes := Policy("drover-namespaces-of-modules"), Policy("drover-operator-deletes")
	return append([]Attack{
		{Who: OperatorToken, What: "create a DaemonSet in a namespace without a Module", Why: anything, Answer: strange,
			Try: func(s *Scene) error { return s.operator().Create(s.Context(), s.daemonSet(s.module(withPlugin))) }},
		{Who: OperatorToken, What: "create one for a Module that has no device plugin", Why: anything, Answer: as,
			Try: func(s *Scene) error {
				m := s.module()
				s.create(m)
				d := s.daemonSet(s.module(withPlugin, func(asked *v1beta1.Module) { asked.UID = m.UID }))
				return s.soon(func(ctx context.Context) error { return s.operator().Create(ctx, d.DeepCopy(), client.DryRunAll) })
			}},
		{Who: OperatorToken, What: "create one for a Module with a device plugin, from another image", Why: anything, Answer: as,
			Try: daemonSet(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = "evil.example.com/e:1" })},
		{Who: OperatorToken, What: "create one under a ServiceAccount that the Module does not name", Why: anything, Answer: as,
			Try: daemonSet(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.ServiceAccountName = "admin" })},
		{Who: OperatorToken, What: "create one that mounts a Secret", Why: anything, Answer: as,
			Try: daemonSet(func(d *appsv1.DaemonSet) {
				d.Spec.Template.Spec.Volumes = withVolume(d, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})
			})},
		{Who: OperatorToken, What: "create one that mounts the node's root", Why: anything, Answer: as,
			Try: daemonSet(func(d *appsv1.DaemonSet) {
				d.Spec.Template.Spec.Volumes = withVolume(d, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
			})},
		{Who: OperatorToken, What: "change the image of a DaemonSet that is not its own", Why: anything, Answer: workloads,
			Try: func(s *Scene) error {
				foreign := s.foreignDaemonSet()
				s.create(foreign)
				return s.operator().Patch(s.Context(), foreign, strategic(
					`{"spec":{"template":{"spec":{"containers":[{"name":"plugin","image":"evil.example.com/e:1"}]}}}}`))
			}},
		{Who: OperatorToken, What: "delete a DaemonSet that is not its own", Why: "the cluster's network would go with it", Answer: deletes,
			Try: func(s *Scene) error {
				foreign := s.foreignDaemonSet()
				s.create(foreign)
				return s.operator().Delete(s.Context(), foreign)
			}},
		{Who: OperatorToken, What: "delete an agent's pod that is at work", Why: "nothing would look after the node meanwhile", Answer: deletes,
			Try: func(s *Scene) error {
				pod := &corev1.Pod{ObjectMeta: meta(env.OperatorNamespace, "drover-agent-"+s.namespace), Spec: corev1.PodSpec{
					NodeName: s.node(kernelVersion), Containers: []corev1.Container{{Name: "agent", Image: "registry.example.com/agent:1"}},
				}}
				pod.Labels = map[string]string{"app.kubernetes.io/name": agentpod.AgentLabel}
				s.create(pod)
				return s.operator().Delete(s.Context(), pod, client.GracePeriodSeconds(0))
			}},
		{Who: OperatorToken, What: "say, on a spoke, which image carriers run", Why: "carriers come to every node",
			Answer: Policy("drover-operator-configmaps"), Try: rewritesImages},
		{Who: OperatorToken, What: "create a privileged Job", Why: anything, Answer: workloads, Try: func(s *Scene) error {
			s.create(s.module())
			j := s.job()
			j.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			return s.operator().Create(s.Context(), j)
		}},
	}, nodePatches()...)
}

// nodePatches are changes of Nodes and Modules that the operator never makes.
func nodePatches() []Attack {
	nodes, labels := Policy("drover-operator-nodes"), "labels and taints decide which pods, and which Secrets, come to a node"
	return []Attack{
		{Who: OperatorToken, What: "label a node as one of the control plane", Why: labels, Answer: nodes,
			Try: patchesNode(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)},
		{Who: OperatorToken, What: "label a node as ready by another operator's label", Why: labels, Answer: nodes,
			Try: patchesNode(`{"metadata":{"labels":{"pool":"bank"}}}`)},
		{Who: OperatorToken, What: "annotate a node for others", Why: labels, Answer: nodes,
			Try: patchesNode(`{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"x"}}}`)},
		{Who: OperatorToken, What: "put a taint on a node", Why: "NoExecute ends all of its pods", Answer: nodes,
			Try: patchesNode(`{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`)},
		{Who: OperatorToken, What: "change a node's provider", Why: "the cloud's controller would delete another machine", Answer: nodes,
			Try: patchesNode(`{"spec":{"providerID":"aws:///eu/i-1"}}`)},
		{Who: OperatorToken, What: "change what a Module loads", Why: "a Module is its author's, and an administrator's policies are about it",
			Answer: Policy("drover-operator-modules"), Try: func(s *Scene) error {
				m := s.module()
				s.create(m)
				return s.operator().Patch(s.Context(), m, merge(`{"spec":{"moduleLoader":{"container":{"modprobe":{"moduleName":"evil"}}}}}`))
			}},
	}
}

// daemonSet is what the operator makes of a Module's device plugin.
func (s *Scene) daemonSet(m *v1beta1.Module) *appsv1.DaemonSet {
	s.Helper()
	d, err := plugin.DaemonSet(m, env.AgentImage)
	s.must(err)
	return d
}

// foreignDaemonSet has nothing of Drover's.
func (s *Scene) foreignDaemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "network"}
	return &appsv1.DaemonSet{ObjectMeta: meta(s.namespace, "network"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "plugin", Image: "registry.example.com/plugin:1"}},
		}},
	}}
}

func withPlugin(m *v1beta1.Module) {
	m.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "registry.example.com/plugin:1"}}
}

func withVolume(d *appsv1.DaemonSet, source corev1.VolumeSource) []corev1.Volume {
	return append(d.Spec.Template.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: source})
}

func daemonSet(change func(*appsv1.DaemonSet)) func(*Scene) error {
	return func(s *Scene) error {
		m := s.module(withPlugin, func(m *v1beta1.Module) { m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} })
		s.create(m)
		d := s.daemonSet(m)
		d.Name = "forged-" + d.Name
		change(d)
		return s.soon(func(ctx context.Context) error { return s.operator().Create(ctx, d.DeepCopy(), client.DryRunAll) })
	}
}

func (s *Scene) job() *batchv1.Job {
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "admin",
		Containers: []corev1.Container{{Name: "build", Image: "evil.example.com/e:1"}}}
	labels := map[string]string{v1beta1.ModuleNameLabel: "nic", "app.kubernetes.io/part-of": "drover"}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nic-build", Labels: labels},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}}}
}

// rewritesImages has the right to write ConfigMaps that config/spoke gives the operator.
func rewritesImages(s *Scene) error {
	name := "images-" + s.namespace
	s.create(&corev1.ConfigMap{ObjectMeta: meta(env.OperatorNamespace, name)})
	s.create(&rbacv1.Role{ObjectMeta: meta(env.OperatorNamespace, name), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get", "patch"}},
	}})
	s.create(&rbacv1.RoleBinding{ObjectMeta: meta(env.OperatorNamespace, name),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: env.OperatorNamespace, Name: env.Operator}}})
	operator, images := s.operator(), &corev1.ConfigMap{}
	s.await("the operator's right to ConfigMaps", func(ctx context.Context) (bool, error) {
		err := operator.Get(ctx, client.ObjectKey{Namespace: env.OperatorNamespace, Name: name}, images)
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, client.IgnoreNotFound(err)
	})
	return operator.Patch(s.Context(), images, merge(`{"data":{"carrier":"evil.example.com/e:1"}}`))
}

func patchesNode(patch string) func(*Scene) error {
	return func(s *Scene) error {
		node := &corev1.Node{ObjectMeta: meta("", s.node(kernelVersion))}
		return s.operator().Patch(s.Context(), node, merge("%s", patch))
	}
}
