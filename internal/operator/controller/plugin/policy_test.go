// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// policed makes a ModulePolicy that is enforced in a namespace.
func policed(t *testing.T, admin client.Client, namespace string, workloads *v1alpha1.ModulePolicyWorkloads) *v1alpha1.ModulePolicy {
	t.Helper()
	p := &v1alpha1.ModulePolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: v1alpha1.ModulePolicySpec{
		Mode: v1alpha1.PolicyEnforce, Workloads: workloads,
		NamespaceSelector: &v1alpha1.ModulePolicySelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}}
	if err := admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), p)); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestAPolicyDeniesANewPlugin of a Module from before the policy, says so, and leaves one that
// runs.
func TestAPolicyDeniesANewPlugin(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	policy := policed(t, admin, m.Namespace, nil)
	start(t, e)
	denied := func(want bool) {
		t.Helper()
		eventually(t, "the Module says what its policy denies", func(ctx context.Context) (bool, error) {
			p, err := told(ctx, admin, m)
			return (p.Reason == kmmv1beta1.ReasonPolicyDenied && strings.HasPrefix(p.Message, "spec.devicePlugin: ModulePolicy")) == want, err
		})
	}
	denied(true)
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
	exists(t, admin, daemonSet, false)
	if err := admin.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, daemonSet, true)
	denied(false)

	policed(t, admin, m.Namespace, nil)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Fatal(err)
	}
	// The wish changes past the admission policy, as for a Module whose change came first.
	before, made := m.DeepCopy(), daemonSet.Generation
	m.Spec.Tolerations = append(m.Spec.Tolerations, corev1.Toleration{Key: "example.com/new", Operator: corev1.TolerationOpExists})
	if err := admin.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	denied(true)
	exists(t, admin, daemonSet, true)
	if daemonSet.Generation != made {
		t.Errorf("the DaemonSet was changed: %+v", daemonSet.Spec.Template.Spec)
	}
}

// TestAPolicyGivesThePriority of new plugins, which is the cluster's default unless it names one.
func TestAPolicyGivesThePriority(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	for class, workloads := range map[string]*v1alpha1.ModulePolicyWorkloads{
		"":                        {Privileged: v1alpha1.Allow},
		"system-cluster-critical": {Privileged: v1alpha1.Allow, PriorityClassName: "system-cluster-critical"},
	} {
		m := module()
		m.Namespace, m.UID = e.Namespace(t), ""
		policed(t, admin, m.Namespace, workloads)
		if err := admin.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
		exists(t, admin, daemonSet, true)
		if got := daemonSet.Spec.Template.Spec.PriorityClassName; got != class {
			t.Errorf("the priority class is %q, want %q", got, class)
		}
	}
}
