// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"path/filepath"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/internal/testkit/source"
)

// serverArguments are what kubeadm and its like set, too.
var serverArguments = map[string]string{
	"authorization-mode":       "Node,RBAC",
	"enable-admission-plugins": "NodeRestriction",
}

// startOperator starts the operator as a process under its own ServiceAccount, with dir for its
// files. One that lacks a check is not kept in bin/, where others look for it.
func (s *Scene) startOperator(dir string, lacks bool) *fleet.Process {
	s.Helper()
	tree, err := source.Find(s.Context())
	s.must(err)
	program, kubeconfig := filepath.Join(tree.Bin, "drover-operator"), filepath.Join(dir, "kubeconfig")
	if lacks {
		program = filepath.Join(dir, "drover-operator")
	}
	s.must(fleet.BuildProgram(s.Context(), tree.Root, "./cmd/drover-operator", program))
	s.must(fleet.WriteKubeconfig(kubeconfig, s.config(env.Operator)))
	p, err := fleet.StartProcess(program, filepath.Join(dir, "operator.log"), []string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + env.OperatorNamespace, "--agent-image=" + env.AgentImage, "--leader-elect=false",
		"--signer-image=registry.example.com/drover-signer:1",
		"--build-image=registry.example.com/buildah@sha256:" + strings.Repeat("a", 64), "--build-host-modules=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	})
	s.must(err)
	return p
}

// without takes an admission policy's binding away, and returns when the API server knows: it learns
// of bindings in their order, so another one that comes later is in force no earlier.
func (s *Scene) without(policy string) {
	s.Helper()
	const canary = "attacks-canary"
	s.create(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta("", canary), Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			ResourceNames: []string{canary},
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "false"}},
	}})
	s.must(s.admin.Delete(s.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta("", policy)}))
	s.create(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta("", canary),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: canary, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}})
	s.await("the canary", func(ctx context.Context) (bool, error) {
		return s.admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(s.namespace, canary)}, client.DryRunAll) != nil, nil
	})
}
