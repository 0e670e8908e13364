// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// refuseLabels has a policy of the cluster refuse labels of one node; the func takes it away.
func (s *scene) refuseLabels(t *testing.T, node string) (allow func()) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "frozen-" + node},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{node}, RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "object.metadata.labels == oldObject.metadata.labels",
				Message: "the labels of this node are frozen"}},
		}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	allow = func() {
		for _, o := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(s.admin.Delete(context.Background(), o)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(allow)
	for _, o := range []client.Object{policy, binding} {
		if err := s.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	probe := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/probe":"1"}}}`))
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		err := s.admin.Patch(ctx, n, probe, client.DryRunAll)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		t.Fatalf("the policy is not in force: %v", err)
	}
	return allow
}

// TestRefusedLabelsAreTold on the Module that they speak of, and only there, until they are taken.
func TestRefusedLabelsAreTold(t *testing.T) {
	s := newScene(t, 2)
	start(t, s.Env)
	frozen := s.nodes[0]
	allow := s.refuseLabels(t, frozen)
	for _, name := range s.nodes {
		s.order(t, name)
		s.report(t, name, s.live("boot-1"))
	}
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonWriteRefused)
	ready := meta.FindStatusCondition(s.module.Status.Conditions, v1beta1.ConditionReady)
	for _, part := range []string{frozen, "the labels of this node are frozen", v1beta1.ReadyLabel(s.namespace, "nic")} {
		if !strings.Contains(ready.Message, part) {
			t.Errorf("it does not tell %q: %s", part, ready.Message)
		}
	}
	if strings.Contains(ready.Message, s.nodes[1]) {
		t.Errorf("it names a node whose labels are taken: %s", ready.Message)
	}
	s.awaitCondition(t, v1beta1.ConditionLoaded, metav1.ConditionTrue, v1beta1.ReasonLoaded)
	s.awaitLabel(t, s.nodes[1], v1beta1.ReadyLabel(s.namespace, "nic"), true)

	allow()
	s.awaitLabel(t, frozen, v1beta1.ReadyLabel(s.namespace, "nic"), true)
	s.awaitCondition(t, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
}
