// SPDX-License-Identifier: Apache-2.0

//go:build migrate

package migrate

import (
	"context"
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
)

// peerAccount is the ServiceAccount of KMM's operator.
const peerAccount = "kmm-operator-controller"

// kmm makes a cluster that KMM has run for a while: its Modules are loaded on every node.
func (w *world) kmm() {
	w.Helper()
	w.definitions()
	w.operator()
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: drivers, Labels: map[string]string{"kmm.node.k8s.io/contains-modules": ""}}})
	w.modules = []*v1beta1.Module{
		w.module("card", func(s *v1beta1.ModuleSpec) {
			s.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "registry.example.com/card-plugin:1"}}
		}),
		w.module("disk", func(s *v1beta1.ModuleSpec) { s.ModuleLoader.Container.InTreeModuleToRemove = "olddisk" }),
		w.module("gpu", func(s *v1beta1.ModuleSpec) {
			s.DRA = &v1beta1.DRASpec{
				Container: v1beta1.WorkloadContainer{Image: "registry.example.com/gpu-driver:1"}, DriverName: "gpu.example.com",
				DeviceClasses: []v1beta1.DeviceClassSpec{{Name: "gpu.example.com"}},
			}
		}),
		w.module("link", func(s *v1beta1.ModuleSpec) {
			s.ModuleLoader.Container.ImagePullPolicy = corev1.PullAlways
			s.ModuleLoader.Container.InTreeModulesToRemove = []string{"oldlink", "olderlink"}
		}),
	}
	for name, node := range w.nodes {
		for _, m := range w.modules {
			w.load(name, node.Status.NodeInfo.KernelVersion, m)
		}
		w.label(node)
		w.config(node)
	}
	w.workloads()
	w.preflight()
	w.hooks("kmm-operator-validating-webhook-configuration")
}

// operator is KMM's, and the server of its webhooks. Pods run on hollow nodes.
func (w *world) operator() {
	w.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	w.make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: peer, Name: peerAccount}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: peerAccount}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: peerAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: peerAccount},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: peer, Name: peerAccount}},
		})
	for name, container := range map[string]corev1.Container{
		peerAccount: {Env: []corev1.EnvVar{{Name: "OPERATOR_NAMESPACE", Value: peer}, {Name: "RELATED_IMAGE_WORKER", Value: "kmm-worker:1"}}},
		"kmm-operator-webhook": {Args: []string{"--config=kmm-operator-manager-config", "--enable-module", "--enable-namespace",
			"--enable-preflightvalidation"}},
	} {
		container.Name, container.Image = "manager", "kmm:1"
		labels := map[string]string{"app.kubernetes.io/name": "kmm", "app.kubernetes.io/part-of": "kmm", "control-plane": name}
		w.make(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: peer, Name: name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{ServiceAccountName: peerAccount, Containers: []corev1.Container{container}},
				},
			},
		})
	}
	var pods corev1.PodList
	w.level("KMM's operator runs", func(ctx context.Context) (string, error) {
		err := w.List(ctx, &pods, client.InNamespace(peer), client.MatchingLabels{"control-plane": peerAccount})
		if err == nil && (len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning) {
			return fmt.Sprintf("%d pods, not running", len(pods.Items)), nil
		}
		return "", err
	})
	w.make(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: peer, Name: "kmm.sigs.x-k8s.io"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(pods.Items[0].Name + "_0b5ec0de-1d1e"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NowMicro()),
		},
	})
}

// module makes a Module that KMM has seen.
func (w *world) module(name string, change func(*v1beta1.ModuleSpec)) *v1beta1.Module {
	w.Helper()
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: drivers, Name: name, Finalizers: []string{v1beta1.ModuleFinalizer}},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"example.com/card": "true"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: name},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "registry.example.com/" + name + ":1-${KERNEL_FULL_VERSION}"}},
			}},
		},
	}
	change(&m.Spec)
	w.make(m)
	return m
}

func (w *world) label(node *corev1.Node) {
	w.Helper()
	before := node.DeepCopy()
	for _, m := range w.modules {
		maps.Copy(node.Labels, NodeLabels(m))
	}
	w.must(w.Patch(w.Context(), node, client.MergeFrom(before)))
}

// config is a node's NodeModulesConfig, with all loaded, written by KMM's own account.
func (w *world) config(node *corev1.Node) {
	w.Helper()
	var ordered, loaded []any
	labels := map[string]string{}
	for _, m := range w.modules {
		ordered = append(ordered, Entry(m, node.Status.NodeInfo.KernelVersion))
		status := Entry(m, node.Status.NodeInfo.KernelVersion)
		status["bootId"] = node.Status.NodeInfo.BootID
		loaded = append(loaded, status)
		labels[v1beta1.ConfiguredLabel(m.Namespace, m.Name)], labels[v1beta1.InUseLabel(m.Namespace, m.Name)] = "", ""
	}
	nmc := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"modules": ordered}}}
	nmc.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("NodeModulesConfig"))
	nmc.SetName(node.Name)
	nmc.SetLabels(labels)
	nmc.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}})
	c := w.asKMM()
	w.must(c.Create(w.Context(), nmc))
	w.must(unstructured.SetNestedSlice(nmc.Object, loaded, "status", "modules"))
	w.must(c.Status().Update(w.Context(), nmc))
}

// asKMM is a client with KMM's rights.
func (w *world) asKMM() client.Client {
	w.Helper()
	config, err := w.AccountConfig(w.Context(), peer, peerAccount)
	w.must(err)
	config.UserAgent = "manager"
	c, err := client.New(config, client.Options{Scheme: w.Scheme()})
	w.must(err)
	return c
}

// made creates what KMM's program, which is called manager, has created.
func (w *world) made(object client.Object) {
	w.Helper()
	w.must(w.Create(w.Context(), object, client.FieldOwner("manager")))
}

// workloads are the DaemonSets of device plugins and DRA drivers, whose pods run, and the classes.
func (w *world) workloads() {
	w.Helper()
	for _, m := range w.modules {
		role := v1beta1.RoleDevicePlugin
		switch {
		case m.Spec.DRA != nil:
			role = v1beta1.RoleDRA
		case m.Spec.DevicePlugin == nil:
			continue
		}
		template := Plugin(m, role)
		w.made(&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: drivers, Name: m.Name + "-" + role + "-7xk2p", Labels: template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, v1beta1.GroupVersion.WithKind("Module"))},
			},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		})
		if m.Spec.DRA != nil {
			w.made(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: m.Spec.DRA.DeviceClasses[0].Name, Labels: map[string]string{
				v1beta1.ModuleNameLabel: m.Name, v1beta1.ModuleNamespaceLabel: m.Namespace,
			}}})
		}
	}
	w.level("KMM's plugins run", func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		err := w.List(ctx, &pods, client.InNamespace(drivers), client.HasLabels{v1beta1.RoleLabel})
		running := 0
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				running++
				w.plugins[string(pods.Items[i].UID)] = true
			}
		}
		if err == nil && running != 2*nodes {
			return fmt.Sprintf("%d of %d pods run", running, 2*nodes), nil
		}
		return "", err
	})
}

// preflight is one that KMM has answered.
func (w *world) preflight() {
	w.Helper()
	p := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: "newer"}}
	p.Spec.KernelVersion = kernels[0]
	w.make(p)
	for _, m := range w.modules {
		p.Status.Modules = append(p.Status.Modules, v1beta2.PreflightValidationModuleStatus{
			Namespace: m.Namespace, Name: m.Name, CRStatus: v1beta2.CRStatus{
				VerificationStatus: v1beta2.VerificationSuccess, VerificationStage: v1beta2.StageDone, StatusReason: "verified image exists",
				LastTransitionTime: metav1.Now(),
			},
		})
	}
	w.must(w.Status().Update(w.Context(), p))
}

// hooks is a webhook configuration of KMM that nobody serves.
func (w *world) hooks(name string) {
	w.Helper()
	hook := func(name, path string, group, resource string, operations ...admissionv1.OperationType) admissionv1.ValidatingWebhook {
		version := "v1beta1"
		if group == "" {
			version = "v1"
		}
		return admissionv1.ValidatingWebhook{
			Name: name, AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: peer, Name: "kmm-operator-webhook-service", Path: ptr.To(path),
			}},
			Rules: []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource},
			}}},
		}
	}
	namespace := hook("namespace-deletion.kmm.sigs.k8s.io", "/validate--v1-namespace", "", "namespaces", admissionv1.Delete)
	namespace.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kmm.node.k8s.io/contains-modules": ""}}
	w.make(&admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{namespace, hook("vmodule.kb.io", "/validate-kmm-sigs-x-k8s-io-v1beta1-module",
			v1beta1.GroupVersion.Group, "modules", admissionv1.Create, admissionv1.Update)},
	})
	w.level("the API server asks the webhook", func(ctx context.Context) (string, error) {
		m := w.modules[0].DeepCopy()
		m.Labels = map[string]string{"asked": "true"}
		err := w.Patch(ctx, m, client.MergeFrom(w.modules[0]), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "vmodule.kb.io") {
			return fmt.Sprintf("a write of a Module: %v", err), nil
		}
		return "", nil
	})
}

// unhook takes a webhook configuration away: until then, nobody can write Modules.
func (w *world) unhook(name string) {
	w.Helper()
	w.must(w.Delete(w.Context(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	w.level("the API server no longer asks the webhook", func(ctx context.Context) (string, error) {
		m := w.modules[0].DeepCopy()
		m.Labels = map[string]string{"asked": "true"}
		return "", w.Patch(ctx, m, client.MergeFrom(w.modules[0]), client.DryRunAll)
	})
}
