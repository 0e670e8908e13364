// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"os"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/operator/controller/startup"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// serverArguments are what kubeadm and its like set, too.
var serverArguments = map[string]string{
	"authorization-mode":       "Node,RBAC",
	"enable-admission-plugins": "NodeRestriction",
}

// startOperator runs the operator's controllers under its own ServiceAccount, with its own cache,
// as cmd/drover-operator does. It ends with the test.
func (s *Scene) startOperator() {
	s.Helper()
	o, err := operator.ParseFlags([]string{
		"--namespace=" + env.OperatorNamespace, "--agent-image=" + env.AgentImage, "--leader-elect=false",
		"--signer-image=registry.example.com/drover-signer:1",
		"--build-image=registry.example.com/buildah@sha256:" + strings.Repeat("a", 64), "--build-host-modules=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	})
	s.must(err)
	o.Log = logr.Discard()
	mgr, err := operator.NewManager(s.config(env.Operator), o)
	s.must(err)
	o.Orders.CarrierUser, err = operator.CarrierUser(mgr.GetRESTMapper())
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, mgr, o, controllers(mgr, o)) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
}

// controllers are those that attacks go through.
func controllers(mgr ctrl.Manager, o *operator.Options) map[string]operator.Controller {
	c, live, closed, numbers := mgr.GetClient(), mgr.GetAPIReader(), &gate.Gate{}, metrics.NewBoard()
	recorder := kube.NewRecorder(mgr.GetEventRecorder(operator.Name))
	return map[string]operator.Controller{
		"module":  module.New(c, live, o.Module(recorder, closed, numbers)),
		"node":    node.New(c, node.Options{Makes: o.Makes(), Recorder: recorder, Metrics: numbers, Gate: closed}),
		"plugin":  plugin.New(c, live, plugin.Options{AgentImage: o.Orders.AgentImage, DRA: o.Orders.DRA, Gate: closed}),
		"startup": startup.New(c, o.StartupTaints, closed),
		"image":   moduleimage.New(c, live, o.Images(closed)),
	}
}

// install creates the objects of a file.
func (s *Scene) install(file string) {
	s.Helper()
	content, err := os.ReadFile(file)
	s.must(err)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal([]byte(document), &object.Object))
		s.create(object)
	}
}

// without takes an admission policy's binding away, and returns when the API server knows: it
// learns of bindings in their order, so another one that comes later is in force no earlier.
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
