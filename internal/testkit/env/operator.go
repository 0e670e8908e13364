// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
)

// ours are the labels of what the operator makes for a Module.
func ours(module string) map[string]string {
	return map[string]string{kmmv1beta1.ModuleNameLabel: module, kmmv1beta1.RoleLabel: kmmv1beta1.RoleDevicePlugin,
		"app.kubernetes.io/part-of": "drover"}
}

// awaitOperator waits for the policies about the operator. The Module policy-probe must be in its
// namespace.
func (e *Env) awaitOperator(ctx context.Context) error {
	operator, err := e.asOperator()
	if err != nil {
		return err
	}
	if err := e.awaitModule(ctx, OperatorNamespace); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	foreign, patch := account.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	probes := map[string]func(context.Context) error{
		"drover-namespaces-of-modules": func(ctx context.Context) error {
			return operator.Create(ctx, accountIn(metav1.NamespaceDefault), client.DryRunAll)
		},
		"drover-operator-workloads": func(ctx context.Context) error {
			made := accountIn(OperatorNamespace)
			made.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}}
			return operator.Create(ctx, made, client.DryRunAll)
		},
		"drover-daemonsets-of-modules": func(ctx context.Context) error {
			return operator.Create(ctx, strangeDaemonSet(), client.DryRunAll)
		},
		"drover-operator-modules": func(ctx context.Context) error {
			module := &kmmv1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: "policy-probe"}}
			return operator.Patch(ctx, module, patch, client.DryRunAll)
		},
	}
	admin, err := client.New(e.AdminConfig(), client.Options{Scheme: e.scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "policy-probe"}}
	foreign.Namespace, foreign.Name = OperatorNamespace, "policy-probe"
	for _, object := range []client.Object{node, foreign} {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create a probe: %w", err)
		}
		defer func() { _ = admin.Delete(ctx, object) }() // a probe that stays harms none
	}
	probes["drover-operator-nodes"] = func(ctx context.Context) error { return operator.Patch(ctx, node.DeepCopy(), patch, client.DryRunAll) }
	probes["drover-operator-deletes"] = func(ctx context.Context) error { return operator.Delete(ctx, foreign, client.DryRunAll) }
	for policy, probe := range probes {
		if err := awaitRefusal(ctx, policy, probe); err != nil {
			return err
		}
	}
	return nil
}

// awaitModule waits until the policies know of a Module in a namespace.
func (e *Env) awaitModule(ctx context.Context, namespace string) error {
	operator, err := e.asOperator()
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = operator.Create(ctx, accountIn(namespace), client.DryRunAll)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the policies know the Module in namespace %s: %w", namespace, errors.Join(err, last))
	}
	return nil
}

func (e *Env) asOperator() (client.Client, error) {
	return e.as("system:serviceaccount:"+OperatorNamespace+":"+Operator, "system:serviceaccounts", "system:authenticated")
}

// accountIn is a ServiceAccount as the operator makes them.
func accountIn(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "policy-probe-device-plugin",
		Labels: ours("policy-probe"), Annotations: map[string]string{"drover.dev/module-uid": ""}}}
}

// strangeDaemonSet is well made, but for a Module that has no device plugin.
func strangeDaemonSet() *appsv1.DaemonSet {
	account := accountIn(OperatorNamespace)
	return &appsv1.DaemonSet{ObjectMeta: account.ObjectMeta, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: account.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: account.Labels}, Spec: corev1.PodSpec{
			ServiceAccountName: account.Name, Containers: []corev1.Container{{Name: kmmv1beta1.RoleDevicePlugin, Image: "example.com/i:1"}}}},
	}}
}
